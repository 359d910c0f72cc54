// Speed of each op at the shapes of one GPT-2 124M training step, each against a limit measured in
// the same run: products and attention against a 2048^3 product, the others against a triad.
//
//   bazel run //tests/engine/ops:ops_benchmark -- [threads] [batch] [sequence]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/activation/activation.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/optimizer/adamw.h"
#include "engine/ops/vocabulary/cross_entropy.h"
#include "engine/ops/vocabulary/embedding.h"

namespace trimtab {
namespace {

constexpr int64_t kHidden = 768;
constexpr int64_t kHeads = 12;
constexpr int64_t kLayers = 12;
constexpr int64_t kVocab = 50304;
constexpr int64_t kParameters = 124'475'904;

struct Bench {
  Device& device;
  double peak_flops_per_s = 0;
  double peak_bytes_per_s = 0;
  double step_s = 0;

  Tensor New(const Shape& shape, float value = 0.01f) const {
    Tensor tensor = Tensor::Empty(device, shape, DType::kF32, MemoryTag::kWorkspace);
    Fill(tensor, value);
    return tensor;
  }

  // Median of several runs after one to warm up.
  static double Seconds(const std::function<void()>& run) {
    using Clock = std::chrono::steady_clock;
    run();
    std::vector<double> times;
    double total = 0;
    while (times.size() < 5 || (total < 0.25 && times.size() < 200)) {
      const auto start = Clock::now();
      run();
      times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      total += times.back();
    }
    std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2),
                     times.end());
    return times[times.size() / 2];
  }

  // One line; `calls` is how often a step makes this call.
  void Report(const char* name, const OpRecord& op, int64_t calls,
              const std::function<void()>& run) {
    const double seconds = Seconds(run);
    const bool compute = op.flops > 0;
    const double rate = static_cast<double>(compute ? op.flops : op.bytes) / seconds;
    const double peak = compute ? peak_flops_per_s : peak_bytes_per_s;
    step_s += seconds * static_cast<double>(calls);
    fmt::print("{:<28}{:>10.3f} ms{:>9.1f} {}/s{:>6.0f} %{:>6} x ={:>8.1f} ms\n", name,
               seconds * 1e3, rate / 1e9, compute ? "GFLOP" : "GB   ", 100 * rate / peak, calls,
               seconds * 1e3 * static_cast<double>(calls));
  }
};

void MeasurePeaks(Bench& bench) {
  {
    const int64_t n = 2048;
    const Tensor a = bench.New({n, n});
    const Tensor b = bench.New({n, n});
    Tensor c = bench.New({n, n});
    const double seconds = Bench::Seconds([&] { Gemm(a, Transpose::kNo, b, Transpose::kNo, c); });
    bench.peak_flops_per_s = static_cast<double>(GemmRecord(n, n, n, false).flops) / seconds;
  }
  const int64_t n = 32 << 20;
  const Tensor x = bench.New({n});
  const Tensor y = bench.New({n});
  const Tensor z = bench.New({n});
  const double seconds = Bench::Seconds([&] {
    ParallelFor(bench.device.threads(), n, 4096, [&](int64_t begin, int64_t end) {
      const float* a = x.f32();
      const float* b = y.f32();
      float* c = z.f32();
      for (int64_t i = begin; i < end; ++i) c[i] = a[i] + 0.5f * b[i];
    });
  });
  bench.peak_bytes_per_s = 12.0 * static_cast<double>(n) / seconds;
  fmt::print("limits: {:.0f} GFLOP/s (2048^3 product), {:.1f} GB/s (triad, 3 x 128 MiB)\n",
             bench.peak_flops_per_s / 1e9, bench.peak_bytes_per_s / 1e9);
}

// Forward, input gradient and weight gradient of one linear layer [out, in].
void Linear(Bench& bench, const char* name, int64_t rows, int64_t in, int64_t out, int64_t calls,
            bool bias) {
  const Tensor x = bench.New({rows, in});
  const Tensor w = bench.New({out, in});
  const Tensor b = bench.New({out});
  Tensor y = bench.New({rows, out});
  Tensor dx = bench.New({rows, in});
  Tensor dw = bench.New({out, in});
  bench.Report(
      fmt::format("{} forward", name).c_str(), GemmRecord(rows, out, in, false), calls,
      [&] { Gemm(x, Transpose::kNo, w, Transpose::kYes, y, {.bias = bias ? b : Tensor()}); });
  bench.Report(fmt::format("{} dx", name).c_str(), GemmRecord(rows, in, out, false), calls,
               [&] { Gemm(y, Transpose::kNo, w, Transpose::kNo, dx); });
  bench.Report(fmt::format("{} dw", name).c_str(), GemmRecord(out, in, rows, false), calls,
               [&] { Gemm(y, Transpose::kYes, x, Transpose::kNo, dw); });
  if (!bias) return;
  Tensor db = bench.New({out});
  bench.Report(fmt::format("{} dbias", name).c_str(), BiasBackwardRecord(rows, out), calls,
               [&] { BiasBackward(y, db, false); });
}

void Norms(Bench& bench, int64_t rows) {
  const Shape matrix = {rows, kHidden};
  const Tensor x = bench.New(matrix);
  const Tensor w = bench.New({kHidden});
  const Tensor b = bench.New({kHidden});
  Tensor y = bench.New(matrix);
  Tensor mean = bench.New({rows});
  Tensor rstd = bench.New({rows});
  Tensor dw = bench.New({kHidden});
  Tensor db = bench.New({kHidden});
  const int64_t calls = 2 * kLayers + 1;
  bench.Report("layer norm forward", LayerNormForwardRecord(rows, kHidden), calls,
               [&] { LayerNormForward(x, w, b, 1e-5, y, mean, rstd); });
  bench.Report("layer norm backward", LayerNormBackwardRecord(rows, kHidden), calls,
               [&] { LayerNormBackward(x, x, w, mean, rstd, y, dw, db, false); });
  bench.Report("rms norm forward", RmsNormForwardRecord(rows, kHidden), 0,
               [&] { RmsNormForward(x, w, 1e-5, y, rstd); });
  bench.Report("rms norm backward", RmsNormBackwardRecord(rows, kHidden), 0,
               [&] { RmsNormBackward(x, x, w, rstd, y, dw, false); });
  bench.Report("add (residual)", AddRecord(x.numel()), 2 * kLayers, [&] { Add(x, y); });
}

void Attention(Bench& bench, int64_t batch, int64_t sequence) {
  const AttentionShape s = {.rows = {batch, sequence},
                            .heads = kHeads,
                            .kv_heads = kHeads,
                            .head_size = kHidden / kHeads};
  Tensor qkv = bench.New({s.tokens(), s.qkv_size()});
  Tensor out = bench.New({s.tokens(), kHidden});
  Tensor dqkv = bench.New({s.tokens(), s.qkv_size()});
  Tensor log_sum_exp = bench.New({batch, kHeads, sequence});
  bench.Report("attention forward", AttentionForwardRecord(s), kLayers,
               [&] { AttentionForward(s, qkv, out, log_sum_exp); });
  bench.Report("attention backward", AttentionBackwardRecord(s), kLayers,
               [&] { AttentionBackward(s, qkv, out, log_sum_exp, out, dqkv); });
  bench.Report("rope", RopeRecord(s), 0, [&] { Rope(s, 10000.0, false, qkv); });
}

void Activations(Bench& bench, int64_t rows) {
  const Shape shape = {rows, 4 * kHidden};
  const Tensor x = bench.New(shape, 0.5f);
  Tensor y = bench.New(shape);
  bench.Report("gelu forward", ActivationForwardRecord(rows, 4 * kHidden), kLayers,
               [&] { ActivationForward(ActivationFunction::kGelu, x, y); });
  bench.Report("gelu backward", ActivationBackwardRecord(rows, 4 * kHidden), kLayers,
               [&] { ActivationBackward(ActivationFunction::kGelu, x, y, y); });
  const Tensor gate_up = bench.New({rows, 8 * kHidden}, 0.5f);
  Tensor dgate_up = bench.New({rows, 8 * kHidden});
  bench.Report("swiglu forward", GatedActivationForwardRecord(rows, 4 * kHidden), 0,
               [&] { GatedActivationForward(ActivationFunction::kSilu, gate_up, y); });
  bench.Report("swiglu backward", GatedActivationBackwardRecord(rows, 4 * kHidden), 0,
               [&] { GatedActivationBackward(ActivationFunction::kSilu, gate_up, y, dgate_up); });
}

void Vocabulary(Bench& bench, int64_t rows) {
  Tensor tokens = Tensor::Empty(bench.device, {rows}, DType::kI32, MemoryTag::kWorkspace);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < rows; ++i) ids.push_back(static_cast<int32_t>(i * 7919 % kVocab));
  CopyFromHost(tokens, ids);
  Tensor table = bench.New({kVocab, kHidden});
  Tensor x = bench.New({rows, kHidden});
  bench.Report("embedding forward", EmbeddingForwardRecord(rows, kHidden), 1,
               [&] { EmbeddingForward(tokens, table, 0, x); });
  bench.Report("embedding backward", EmbeddingBackwardRecord(rows, kHidden), 1,
               [&] { EmbeddingBackward(tokens, x, 0, table); });
  const VocabShard shard = {.start = 0, .valid = 50257};
  Tensor logits = bench.New({rows, kVocab});
  Tensor part = bench.New({3, rows});
  const Tensor parts = bench.New({2, 3, rows}, 1.0f);
  Tensor losses = bench.New({rows});
  const Tensor scale = bench.New({1}, 0.1f);
  bench.Report("cross entropy", CrossEntropyRecord(rows, kVocab), 1,
               [&] { CrossEntropy(tokens, kVocab, scale, logits, losses); });
  bench.Report("cross entropy parts", CrossEntropyPartsRecord(rows, kVocab), 1,
               [&] { CrossEntropyParts(logits, tokens, shard, part); });
  bench.Report("cross entropy grad", CrossEntropyGradRecord(rows, kVocab, 2), 1,
               [&] { CrossEntropyGrad(tokens, shard, parts, scale, logits, losses); });
}

void Update(Bench& bench) {
  const Tensor gradient = bench.New({kParameters});
  Tensor parameter = bench.New({kParameters});
  Tensor m = bench.New({kParameters});
  Tensor v = bench.New({kParameters});
  Tensor sum = bench.New({1});
  bench.Report("sum of squares", SumSquaresRecord(kParameters), 1,
               [&] { SumSquares(gradient, sum); });
  const AdamWConfig config = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f};
  Tensor scalars = bench.New({kUpdateScalarCount}, 1.0f);
  Tensor learning_rate = scalars.Slice(kLearningRate, {1});
  Fill(learning_rate, 1e-4f);
  AdamWState state = {.weight = parameter, .m = m, .v = v};
  bench.Report("adamw", AdamWRecord(kParameters), 1,
               [&] { AdamW(config, scalars, gradient, state); });
  bench.Report("fill", FillRecord(kParameters), 0, [&] { Fill(m, 0.0f); });
  bench.Report("copy", CopyRecord(kParameters), 0, [&] { Copy(parameter, m); });
}

void Run(int threads, int64_t batch, int64_t sequence) {
  const auto device = MakeCpuDevice(threads);
  Bench bench = {*device};
  const int64_t rows = batch * sequence;
  fmt::print("threads {}, batch {}, sequence {}\n", threads, batch, sequence);
  MeasurePeaks(bench);
  Linear(bench, "qkv", rows, kHidden, 3 * kHidden, kLayers, true);
  Linear(bench, "proj", rows, kHidden, kHidden, kLayers, true);
  Linear(bench, "fc1", rows, kHidden, 4 * kHidden, kLayers, true);
  Linear(bench, "fc2", rows, 4 * kHidden, kHidden, kLayers, true);
  Linear(bench, "logits", rows, kHidden, kVocab, 1, false);
  Attention(bench, batch, sequence);
  Norms(bench, rows);
  Activations(bench, rows);
  Vocabulary(bench, rows);
  Update(bench);
  fmt::print("sum over a step: {:.0f} ms, {:.0f} tokens/s\n", bench.step_s * 1e3,
             static_cast<double>(rows) / bench.step_s);
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  const auto argument = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  trimtab::Run(argument(1, 2), argument(2, 4), argument(3, 64));
}
