#include "profiler/fp8_scan.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/float8.h"
#include "engine/config/rules/rules.h"
#include "engine/data/dataset/open_token_source.h"
#include "engine/layers/linear/linear_gemms.h"
#include "engine/ops/fp8/quantize.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/runtime/ranks.h"
#include "engine/train/trainer.h"

namespace trimtab {
namespace {

constexpr DType kForward = DType::kF8E4M3;
constexpr DType kBackward = DType::kF8E5M2;

std::vector<float> OnHost(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  CopyToHost(tensor, values);
  return values;
}

/// ||a - b|| / ||b||; 0 when b is all zeros.
double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double off = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += off * off;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return norm > 0 ? std::sqrt(difference / norm) : 0;
}

/// What rounding to `dtype` under `scale` does to values.
double RoundingError(const std::vector<float>& values, float scale, DType dtype) {
  std::vector<float> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), [&](float value) {
    const float scaled = value * scale;
    return (dtype == kForward ? E4M3ToFloat(FloatToE4M3(scaled))
                              : E5M2ToFloat(FloatToE5M2(scaled))) /
           scale;
  });
  return RelativeError(rounded, values);
}

/// A matrix in fp8 with the factor that restores it.
struct Quantized {
  Tensor rows;
  Tensor transposed;
  Tensor inverse;
};

/// Watches one rank train in bf16.
class Scanner : public LinearObserver {
 public:
  Scanner(const Fp8Config& fp8, int64_t rows) : delayed_(fp8.scaling == "delayed"), rows_(rows) {
    history_ = static_cast<size_t>(fp8.history);
  }

  void BeginStep() {
    seen_forward_.clear();
    seen_backward_.clear();
  }

  void OnForward(const std::string& name, const Tensor& x, const Tensor& weight) override {
    // Recomputation and further micro batches come again; the output projection is never fp8.
    if (!name.starts_with("decoder.layers.") || !seen_forward_.insert(name).second) return;
    Layer& layer = LayerNamed(name);
    layer.weight = weight;
    const Tensor sample = Sample(x);
    const float input_scale = Scale(layer.input_history, x, kForward);
    const float weight_scale = Fp8Max(kForward) / Largest(weight);
    Fp8LayerErrors& errors = layer.errors;
    Raise(errors.input, RoundingError(OnHost(sample), input_scale, kForward));
    Raise(errors.weight, RoundingError(OnHost(weight), weight_scale, kForward));
    const Quantized a = Quantize(sample, input_scale, kForward);
    const Quantized b = Quantize(weight, weight_scale, kForward);
    Raise(errors.output, ProductError(sample, weight, Transpose::kYes, a, b.rows, b.inverse));
  }

  void OnBackward(const std::string& name, const Tensor& dy) override {
    if (!name.starts_with("decoder.layers.") || !seen_backward_.insert(name).second) return;
    Layer& layer = LayerNamed(name);
    const Tensor sample = Sample(dy);
    const float gradient_scale = Scale(layer.gradient_history, dy, kBackward);
    const float weight_scale = Fp8Max(kForward) / Largest(layer.weight);
    Raise(layer.errors.gradient, RoundingError(OnHost(sample), gradient_scale, kBackward));
    const Quantized a = Quantize(sample, gradient_scale, kBackward);
    const Quantized b = Quantize(layer.weight, weight_scale, kForward);
    Raise(layer.errors.input_gradient,
          ProductError(sample, layer.weight, Transpose::kNo, a, b.transposed, b.inverse));
  }

  std::vector<Fp8LayerErrors> Errors() const {
    std::vector<Fp8LayerErrors> errors;
    for (const std::string& name : order_) errors.push_back(layers_.at(name).errors);
    return errors;
  }

 private:
  struct Layer {
    Fp8LayerErrors errors;
    Tensor weight;                    // of the last forward pass
    std::deque<float> input_history;  // largest values of the last steps, newest first
    std::deque<float> gradient_history;
  };

  static void Raise(double& error, double value) { error = std::max(error, value); }

  Layer& LayerNamed(const std::string& name) {
    const auto [found, is_new] = layers_.try_emplace(name);
    if (is_new) {
      order_.push_back(name);
      found->second.errors.name = name;
    }
    return found->second;
  }

  Tensor Sample(const Tensor& x) const { return x.Slice(0, {std::min(rows_, x.dim(0)), x.dim(1)}); }

  static Tensor Scalar(Device& device, float value) {
    Tensor scalar = Tensor::Empty(device, {1}, DType::kF32, MemoryTag::kWorkspace);
    CopyFromHost(scalar, std::span<const float>(&value, 1));
    return scalar;
  }

  /// Of all elements; 1 for a tensor of zeros, which any scale suits.
  static float Largest(const Tensor& x) {
    Tensor amax = Scalar(x.device(), 0.0f);
    Amax(x, amax);
    const float largest = OnHost(amax)[0];
    return largest > 0 && std::isfinite(largest) ? largest : 1.0f;
  }

  /// The scale of this step; notes the tensor's own largest value for the next ones.
  float Scale(std::deque<float>& history, const Tensor& x, DType dtype) const {
    const float own = Largest(x);
    const bool current = !delayed_ || history.empty();
    const float largest = current ? own : *std::max_element(history.begin(), history.end());
    history.push_front(own);
    if (history.size() > history_) history.pop_back();
    return Fp8Max(dtype) / largest;
  }

  static Quantized Quantize(const Tensor& x, float scale, DType dtype) {
    Device& device = x.device();
    const int64_t rows = x.dim(0);
    const int64_t columns = x.dim(1);
    Quantized quantized = {
        .rows = Tensor::Empty(device, {rows, columns}, dtype, MemoryTag::kWorkspace),
        .transposed = Tensor::Empty(device, {columns, rows}, dtype, MemoryTag::kWorkspace),
        .inverse = Scalar(device, 1.0f / scale)};
    Fp8Output out = {.rows = quantized.rows, .transposed = quantized.transposed, .amax = {}};
    trimtab::Quantize(x, Scalar(device, scale), out);
    return quantized;
  }

  /// How far the product of quantised operands is from that of x and `weight`, both to fp32.
  static double ProductError(const Tensor& x, const Tensor& weight, Transpose transpose,
                             const Quantized& fp8_x, const Tensor& fp8_weight,
                             const Tensor& inverse) {
    const int64_t columns = weight.dim(transpose == Transpose::kYes ? 0 : 1);
    const auto product = [&] {
      return Tensor::Empty(x.device(), {x.dim(0), columns}, DType::kF32, MemoryTag::kWorkspace);
    };
    Tensor exact = product();
    Gemm(x, Transpose::kNo, weight, transpose, exact);
    Tensor rounded = product();
    Gemm(fp8_x.rows, Transpose::kNo, fp8_weight, Transpose::kYes, rounded,
         {.scale_a = fp8_x.inverse, .scale_b = inverse});
    return RelativeError(OnHost(rounded), OnHost(exact));
  }

  bool delayed_;
  size_t history_ = 1;
  int64_t rows_;
  std::vector<std::string> order_;
  std::map<std::string, Layer> layers_;
  std::set<std::string> seen_forward_;
  std::set<std::string> seen_backward_;
};

/// `run` on one rank in bf16, after a check that it could run in fp8.
RunConfig OneRankInBf16(const RunConfig& run) {
  RunConfig scanned = run;
  scanned.layout.tp = 1;
  scanned.layout.cp = 1;
  scanned.layout.cp_comm_type = CpCommType::kP2p;
  scanned.layout.dp = 1;
  scanned.layout.ep = 1;
  scanned.layout.etp = 1;
  scanned.layout.dispatch = Dispatch::kAllToAll;
  scanned.layout.sequence_parallel = false;
  scanned.layout.zero = 0;
  scanned.layout.numerics.precision = Precision::kFp8;
  RequireLegal(scanned);
  scanned.layout.numerics.precision = Precision::kBf16;
  return scanned;
}

}  // namespace

Fp8Scan ScanFp8(const RunConfig& run, const Fp8ScanOptions& options) {
  TRIMTAB_ASSERT(options.steps >= 1 && options.rows >= 16 && options.rows % 16 == 0,
                 "a scan of {} steps over {} rows", options.steps, options.rows);
  RunConfig scanned = OneRankInBf16(run);
  if (scanned.steps == 0) scanned.steps = options.steps;
  const std::unique_ptr<TokenSource> source = OpenTokenSource(scanned);
  Fp8Scan scan = {
      .layers = {}, .proposed = run.fp8, .threshold = options.threshold, .steps = options.steps};
  RunRanks(scanned, [&](Rank& rank) {
    Scanner scanner(run.fp8, options.rows);
    Trainer trainer(scanned, rank.parallel(), rank.device());
    trainer.Observe(&scanner);
    for (int64_t step = 0; step < options.steps; ++step) {
      if (options.progress) options.progress(step, options.steps);
      scanner.BeginStep();
      trainer.Step(*source, step);
    }
    scan.layers = scanner.Errors();
  });
  scan.proposed.bf16_layers.clear();
  for (const Fp8LayerErrors& layer : scan.layers) {
    if (layer.worst_product() > options.threshold) {
      scan.proposed.bf16_layers.push_back(layer.name);
    }
  }
  return scan;
}

nlohmann::json ToJson(const Fp8Scan& scan) {
  nlohmann::json layers = nlohmann::json::array();
  for (const Fp8LayerErrors& each : scan.layers) {
    const bool kept = each.worst_product() > scan.threshold;
    layers.push_back({{"name", each.name},
                      {"input_error", each.input},
                      {"weight_error", each.weight},
                      {"gradient_error", each.gradient},
                      {"output_error", each.output},
                      {"input_gradient_error", each.input_gradient},
                      {"proposed", kept ? "bf16" : "fp8"}});
  }
  return {{"steps", scan.steps},
          {"threshold", scan.threshold},
          {"layers", layers},
          {"fp8",
           {{"scaling", scan.proposed.scaling},
            {"history", scan.proposed.history},
            {"bf16_layers", scan.proposed.bf16_layers}}}};
}

}  // namespace trimtab
