// Speed of the ops at the shapes of Llama-2 7B on a GPU. Ops bound by memory stand against the copy
// bandwidth measured in the same run; products are given in TFLOP/s, in bf16 and in fp8 with fast
// and with split accumulation. Medians, on random data, with the clocks and the power of the run.
//
//   bazel run //tests/engine/ops/cuda:kernels_benchmark             on GPU 0
//   bazel run //tests/engine/ops/cuda:kernels_benchmark -- --small  small shapes on the cpu:
//   whether
//                                                                   this program runs, nothing more
#include <fmt/format.h>

#include <algorithm>

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/cuda/loader.h"
#include "engine/device/tensor.h"
#include "engine/ops/activation/activation.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/fp8/fused_fp8.h"
#include "engine/ops/fp8/quantize.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/optimizer/adamw.h"
#include "engine/ops/vocabulary/cross_entropy.h"
#include "engine/ops/vocabulary/embedding.h"
#include "tests/engine/ops/cuda/block_products.h"
#include "tests/engine/ops/cuda/meter.h"

namespace trimtab {
namespace {

struct Sizes {
  int64_t sequence = 4096;
  int64_t batch = 2;
  int64_t hidden = 4096;
  int64_t heads = 32;
  int64_t ffn = 11008;
  int64_t vocab = 32000;
  int64_t parameters = int64_t{1} << 28;
  int64_t copy_bytes = int64_t{1} << 30;
  std::vector<BlockLinear> linears = Llama2Block7B();
  std::vector<int64_t> product_tokens = {4096, 8192};

  int64_t tokens() const { return batch * sequence; }
  AttentionShape attention() const { return {{batch, sequence}, heads, heads, hidden / heads}; }
};

Sizes SmallSizes() {
  return {.sequence = 16,
          .batch = 2,
          .hidden = 64,
          .heads = 4,
          .ffn = 128,
          .vocab = 96,
          .parameters = 1024,
          .copy_bytes = 1 << 16,
          .linears = {{"qkv", 192, 64}, {"down", 64, 128}},
          .product_tokens = {32}};
}

class Benchmark {
 public:
  Benchmark(Device& device, const Sizes& sizes, PowerSampler* power)
      : device_(device), sizes_(sizes), power_(power) {}

  void Run() {
    Section("memory-bound ops", [&] {
      MeasureCopy();
      Norms();
      Activations();
      Elementwise();
      Embeddings();
      Losses();
      Optimizer();
      Casts();
      FusedCasts();
    });
    fmt::print("least of copy bandwidth: {:.0f} % ({})\n\n", 100 * least_, least_name_);
    for (const int64_t tokens : sizes_.product_tokens) {
      Section(fmt::format("products, {} tokens, bf16", tokens),
              [&] { Products(tokens, false, false); });
      Section(fmt::format("products, {} tokens, fp8, fast accumulation", tokens),
              [&] { Products(tokens, true, true); });
      Section(fmt::format("products, {} tokens, fp8, split accumulation", tokens),
              [&] { Products(tokens, true, false); });
    }
  }

 private:
  void Section(const std::string& title, const std::function<void()>& run) {
    fmt::print("{}\n", title);
    if (power_ != nullptr) power_->Start();
    run();
    if (power_ != nullptr) fmt::print("  {}\n", power_->Stop().ToString());
  }

  Tensor New(const Shape& shape, DType dtype) {
    return Tensor::Empty(device_, shape, dtype, MemoryTag::kWorkspace);
  }

  /// Normal numbers: on zeros a GPU draws less power and runs faster than it ever will in training.
  Tensor Random(const Shape& shape, DType dtype = DType::kBf16) {
    constexpr size_t kPattern = 1 << 20;  // repeated: a host cannot make gigabytes in short time
    static const std::vector<float> kValues = [] {
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      std::vector<float> values(kPattern);
      for (float& value : values) value = normal(random);
      return values;
    }();
    const int64_t numel = shape.numel();
    Tensor whole = New(shape, DType::kF32);
    for (int64_t done = 0; done < numel; done += static_cast<int64_t>(kPattern)) {
      const int64_t count = std::min(numel - done, static_cast<int64_t>(kPattern));
      Tensor part = whole.Slice(done, {count});
      CopyFromHost(part, std::span(kValues).first(static_cast<size_t>(count)));
    }
    if (dtype == DType::kF32) return whole;
    Tensor result = New(shape, dtype);
    if (IsFp8(dtype)) {
      Tensor scale = Ones();
      Fp8Output out{.rows = result.Reshape({1, numel}), .amax = New({1}, DType::kF32)};
      Fill(out.amax, 0);
      Quantize(whole.Reshape({1, numel}), scale, out);
    } else {
      Copy(whole, result);
    }
    return result;
  }

  Tensor Ones() {
    Tensor ones = New({1}, DType::kF32);
    Fill(ones, 1);
    return ones;
  }

  Tensor Tokens() {
    std::mt19937 random(2);
    std::vector<int32_t> ids(static_cast<size_t>(sizes_.tokens()));
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % sizes_.vocab);
    Tensor tokens = New({sizes_.tokens()}, DType::kI32);
    CopyFromHost(tokens, ids);
    return tokens;
  }

  void MeasureCopy() {
    const int64_t numel = sizes_.copy_bytes / 2;
    const Tensor from = Random({numel});
    // Of another type, so that a kernel copies: in a graph the driver's own copy is slower.
    Tensor to = New({numel}, DType::kF16);
    const double seconds = MedianSeconds(device_, [&] { Copy(from, to); });
    copy_bytes_per_s_ = 2.0 * static_cast<double>(from.bytes()) / seconds;
    fmt::print("  {:<34}{:>10.3f} ms{:>9.0f} GB/s, read and written\n", "copy", seconds * 1e3,
               copy_bytes_per_s_ / 1e9);
  }

  void Report(const char* name, const std::function<void()>& run) {
    const OpRecord cost = CostOf(device_, run);
    const double seconds = MedianSeconds(device_, run);
    const double rate = static_cast<double>(cost.bytes) / seconds;
    const double part = rate / copy_bytes_per_s_;
    if (part < least_) {
      least_ = part;
      least_name_ = name;
    }
    fmt::print("  {:<34}{:>10.3f} ms{:>9.0f} GB/s{:>6.0f} %\n", name, seconds * 1e3, rate / 1e9,
               100 * part);
  }

  Shape Matrix(int64_t columns) const { return {sizes_.tokens(), columns}; }

  void Norms() {
    const Tensor x = Random(Matrix(sizes_.hidden));
    const Tensor weight = Random({sizes_.hidden});
    const Tensor bias = Random({sizes_.hidden});
    Tensor y = Random(Matrix(sizes_.hidden));
    Tensor mean = New({sizes_.tokens()}, DType::kF32);
    Tensor rstd = New({sizes_.tokens()}, DType::kF32);
    Tensor dweight = New({sizes_.hidden}, DType::kF32);
    Tensor dbias = New({sizes_.hidden}, DType::kF32);
    Report("rms norm forward", [&] { RmsNormForward(x, weight, 1e-5, y, rstd); });
    Report("rms norm backward", [&] { RmsNormBackward(x, x, weight, rstd, y, dweight, false); });
    Report("layer norm forward", [&] { LayerNormForward(x, weight, bias, 1e-5, y, mean, rstd); });
    Report("layer norm backward",
           [&] { LayerNormBackward(x, x, weight, mean, rstd, y, dweight, dbias, false); });
  }

  void Activations() {
    const Tensor gate_up = Random(Matrix(2 * sizes_.ffn));
    Tensor y = Random(Matrix(sizes_.ffn));
    Tensor dgate_up = New(Matrix(2 * sizes_.ffn), DType::kBf16);
    Report("swiglu forward",
           [&] { GatedActivationForward(ActivationFunction::kSilu, gate_up, y); });
    Report("swiglu backward",
           [&] { GatedActivationBackward(ActivationFunction::kSilu, gate_up, y, dgate_up); });
    const Tensor x = Random(Matrix(sizes_.ffn));
    Tensor dx = New(Matrix(sizes_.ffn), DType::kBf16);
    Report("gelu forward", [&] { ActivationForward(ActivationFunction::kGelu, x, y); });
    Report("gelu backward", [&] { ActivationBackward(ActivationFunction::kGelu, x, y, dx); });
    const AttentionShape shape = sizes_.attention();
    Tensor qkv = Random(Matrix(shape.qkv_size()));
    Report("rope", [&] { Rope(shape, 10000.0, false, qkv); });
  }

  void Elementwise() {
    const Tensor x = Random(Matrix(sizes_.hidden));
    Tensor y = New(Matrix(sizes_.hidden), DType::kBf16);
    Tensor wide = New(Matrix(sizes_.hidden), DType::kF32);
    Fill(y, 0);
    Report("add (residual)", [&] { Add(x, y); });
    Report("copy bf16 to fp32", [&] { Copy(x, wide); });
    const Tensor bias = Random({sizes_.hidden});
    Report("add bias", [&] { AddBias(bias, y); });
    Tensor dbias = New({sizes_.hidden}, DType::kF32);
    Report("bias backward", [&] { BiasBackward(x, dbias, false); });
    Tensor large = New({sizes_.parameters}, DType::kF32);
    Report("fill", [&] { Fill(large, 0); });
    Tensor sum = New({1}, DType::kF32);
    Report("sum of squares", [&] { SumSquares(large, sum); });
  }

  void Embeddings() {
    const Tensor tokens = Tokens();
    const Tensor table = Random({sizes_.vocab, sizes_.hidden});
    Tensor out = New(Matrix(sizes_.hidden), DType::kBf16);
    Report("embedding forward", [&] { EmbeddingForward(tokens, table, 0, out); });
    Tensor dtable = New({sizes_.vocab, sizes_.hidden}, DType::kF32);
    Fill(dtable, 0);
    Report("embedding backward", [&] { EmbeddingBackward(tokens, out, 0, dtable); });
  }

  void Losses() {
    const VocabShard shard{.start = 0, .valid = sizes_.vocab};
    const Tensor targets = Tokens();
    const Tensor scale = Ones();
    Tensor logits = Random(Matrix(sizes_.vocab));
    Tensor part = New({3, sizes_.tokens()}, DType::kF32);
    Tensor losses = New({sizes_.tokens()}, DType::kF32);
    Report("cross-entropy parts", [&] { CrossEntropyParts(logits, targets, shard, part); });
    Report("cross-entropy gradient", [&] {
      CrossEntropyGrad(targets, shard, part.Reshape({1, 3, sizes_.tokens()}), scale, logits,
                       losses);
    });
    Report("cross-entropy", [&] { CrossEntropy(targets, shard.valid, scale, logits, losses); });
  }

  void Optimizer() {
    const Shape flat{sizes_.parameters};
    const auto zeros = [&](DType dtype) {
      Tensor tensor = New(flat, dtype);
      Fill(tensor, 0);
      return tensor;
    };
    const AdamWConfig config{.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f};
    Tensor scalars = New({kUpdateScalarCount}, DType::kF32);
    Fill(scalars, 1);
    const Tensor gradient = Random(flat, DType::kF32);
    {
      AdamWState state{.weight = Random(flat),
                       .master = zeros(DType::kU16),
                       .m = zeros(DType::kBf16),
                       .v = zeros(DType::kBf16)};
      Report("adamw, 16-bit state", [&] { AdamW(config, scalars, gradient, state); });
    }
    AdamWState state{.weight = Random(flat),
                     .master = Random(flat, DType::kF32),
                     .m = zeros(DType::kF32),
                     .v = zeros(DType::kF32)};
    Report("adamw, fp32 state", [&] { AdamW(config, scalars, gradient, state); });
  }

  void Casts() {
    const Tensor x = Random(Matrix(sizes_.ffn));
    const Tensor scale = Ones();
    Tensor amax = New({1}, DType::kF32);
    Fill(amax, 0);
    Report("amax", [&] { Amax(x, amax); });
    Fp8Output out{.rows = New(Matrix(sizes_.ffn), DType::kF8E4M3), .amax = amax};
    Report("quantise to fp8", [&] { Quantize(x, scale, out); });
    out.transposed = New({sizes_.ffn, sizes_.tokens()}, DType::kF8E4M3);
    Report("quantise to fp8, both ways", [&] { Quantize(x, scale, out); });
  }

  /// Rows and transposed copy of [tokens, columns], and the largest magnitude.
  Fp8Output NewFp8(int64_t columns, DType dtype) {
    Fp8Output out{.rows = New(Matrix(columns), dtype),
                  .transposed = New({columns, sizes_.tokens()}, dtype),
                  .amax = New({1}, DType::kF32)};
    Fill(out.amax, 0);
    return out;
  }

  void FusedCasts() {
    const Tensor scale = Ones();
    const Tensor x = Random(Matrix(sizes_.hidden));
    const Tensor weight = Random({sizes_.hidden});
    Tensor rstd = New({sizes_.tokens()}, DType::kF32);
    Fp8Output normed = NewFp8(sizes_.hidden, DType::kF8E4M3);
    Report("rms norm forward to fp8",
           [&] { RmsNormForwardFp8(x, weight, 1e-5, scale, normed, rstd); });
    const Tensor gate_up = Random(Matrix(2 * sizes_.ffn));
    const Tensor dy = Random(Matrix(sizes_.ffn));
    Fp8Output act = NewFp8(sizes_.ffn, DType::kF8E4M3);
    Report("swiglu forward to fp8", [&] { SwiGluForwardFp8(gate_up, scale, act); });
    Fp8Output dgate_up = NewFp8(2 * sizes_.ffn, DType::kF8E5M2);
    Report("swiglu backward to fp8", [&] { SwiGluBackwardFp8(gate_up, dy, scale, dgate_up); });
    Report("gelu forward to fp8", [&] { GeluForwardFp8(dy, scale, act); });
    Fp8Output dx = NewFp8(sizes_.ffn, DType::kF8E5M2);
    Tensor dbias = New({sizes_.ffn}, DType::kF32);
    Report("gelu backward to fp8, and of bias",
           [&] { GeluBackwardFp8(dy, dy, scale, dx, dbias, false); });
    const AttentionShape shape = sizes_.attention();
    const Tensor dqkv = Random(Matrix(shape.qkv_size()));
    Fp8Output turned = NewFp8(shape.qkv_size(), DType::kF8E5M2);
    Report("rope backward to fp8", [&] { RopeBackwardFp8(shape, 10000.0, dqkv, scale, turned); });
  }

  void Products(int64_t tokens, bool fp8, bool fast) {
    double flops = 0;
    double seconds = 0;
    for (const BlockProduct& p : ProductsOf(sizes_.linears, tokens, fp8, /*bias=*/false)) {
      const bool a_as_is = p.trans_a == Transpose::kNo;
      const bool b_as_is = p.trans_b == Transpose::kNo;
      const Tensor a = Random(a_as_is ? Shape{p.m, p.k} : Shape{p.k, p.m}, p.types.a);
      const Tensor b = Random(b_as_is ? Shape{p.k, p.n} : Shape{p.n, p.k}, p.types.b);
      Tensor c = New({p.m, p.n}, p.types.c);
      Fill(c, 0);
      GemmOptions options{.accumulate = p.accumulate,
                          .fp8_sums = fast ? Fp8Sums::kShort : Fp8Sums::kFull};
      if (fp8) options.scale_a = options.scale_b = Ones();
      const auto run = [&] { Gemm(a, p.trans_a, b, p.trans_b, c, options); };
      const auto work = static_cast<double>(CostOf(device_, run).flops);
      const double time = MedianSeconds(device_, run);
      flops += work;
      seconds += time;
      fmt::print("  {:<26}{:>7} x{:>6} x{:>6}{:>10.3f} ms{:>9.0f} TFLOP/s\n", p.name, p.m, p.n, p.k,
                 time * 1e3, work / time / 1e12);
    }
    fmt::print("  {:<50}{:>10.3f} ms{:>9.0f} TFLOP/s\n", "all", seconds * 1e3,
               flops / seconds / 1e12);
  }

  Device& device_;
  Sizes sizes_;
  PowerSampler* power_;
  double copy_bytes_per_s_ = 0;
  double least_ = std::numeric_limits<double>::infinity();
  std::string least_name_;
};

int Main(bool small) {
  if (small) {
    const std::unique_ptr<Device> device = MakeCpuDevice(1);
    Benchmark(*device, SmallSizes(), nullptr).Run();
    return 0;
  }
  const std::unique_ptr<Device> device = MakeCudaDevice(0);
  const PowerSampler::Opened power = OpenPowerSampler(0);
  if (power.sampler == nullptr) fmt::print("no power and clocks: {}\n", power.reason);
  Benchmark(*device, Sizes(), power.sampler.get()).Run();
  return 0;
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  try {
    return trimtab::Main(argc > 1 && std::strcmp(argv[1], "--small") == 0);
  } catch (const trimtab::Error& error) {
    fmt::print(stderr, "kernels_benchmark: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
