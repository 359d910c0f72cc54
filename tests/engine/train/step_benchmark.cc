// Speed of a full GPT-2 124M training step in fp32, against the limit that this machine's own
// matrix product sets in the same run: all FLOPs of the step at the rate of a 2048^3 product.
//
//   bazel run //tests/engine/train:step_benchmark -- [batch] [sequence] [threads] [steps]
//
// With one thread, what is taken is its processor time, which other programs disturb little.
//
// The same step in PyTorch, for comparison: step_benchmark_torch.py beside this file.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>

#include "engine/families/load_config.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/train/trainer.h"

namespace trimtab {
namespace {

double Now(const Device& device) {
  timespec now{};
  clock_gettime(device.threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Seconds(const Device& device, const std::function<void()>& work) {
  const double begin = Now(device);
  work();
  return Now(device) - begin;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class FlopCounter final : public Recorder {
 public:
  void BeginOp(const OpRecord& op) override { flops_ += op.flops; }
  void BeginComm(const CommRecord&) override {}
  void BeginWait(const CommRecord&) override {}
  void End() override {}
  double flops() const { return static_cast<double>(flops_); }

 private:
  int64_t flops_ = 0;
};

/// FLOP/s of a 2048^3 product.
class Product {
 public:
  explicit Product(Device& device) {
    for (Tensor* tensor : {&a_, &b_, &c_}) {
      *tensor = Tensor::Empty(device, {kSize, kSize}, DType::kF32, MemoryTag::kWorkspace);
      Fill(*tensor, 0.01f);
    }
  }
  double FlopsPerSecond() {
    const double seconds =
        Seconds(a_.device(), [&] { Gemm(a_, Transpose::kNo, b_, Transpose::kYes, c_); });
    return 2.0 * kSize * kSize * kSize / seconds;
  }

 private:
  static constexpr int64_t kSize = 2048;
  Tensor a_, b_, c_;
};

void Run(int64_t batch, int64_t sequence, int threads, int64_t steps) {
  RunConfig run;
  run.model = LoadModelConfig("gpt2-124m");
  run.layout.micro_batch = batch;
  run.global_batch = batch;
  run.sequence_length = sequence;
  run.steps = steps + 2;
  const auto device = MakeCpuDevice(threads);
  const ParallelContext context = MakeMetaContext(run.layout, 0);
  Trainer trainer(run, context, *device);
  const auto source = MakeSyntheticSource(run.model.vocab_size, run.seed);
  Product product(*device);

  FlopCounter counter;
  device->set_recorder(&counter);
  trainer.Step(*source, 0);
  device->set_recorder(nullptr);
  trainer.Step(*source, 1);

  std::vector<double> step_s;
  std::vector<double> rates;
  for (int64_t step = 2; step < run.steps; ++step) {
    step_s.push_back(Seconds(*device, [&] { trainer.Step(*source, step); }));
    rates.push_back(product.FlopsPerSecond());
  }
  const double seconds = Median(step_s);
  const double rate = Median(rates);
  const auto tokens = static_cast<double>(batch * sequence);
  const double limit = tokens / (counter.flops() / rate);
  fmt::print("GPT-2 124M fp32 B={} T={} threads={}: {:.1f} ms a step, {:.0f} tokens/s\n", batch,
             sequence, threads, seconds * 1e3, tokens / seconds);
  fmt::print("limit: {:.1f} GFLOP a step at {:.0f} GFLOP/s = {:.0f} tokens/s; reached {:.0f} %\n",
             counter.flops() / 1e9, rate / 1e9, limit, 100.0 * tokens / seconds / limit);
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  trimtab::Run(argument(1, 4), argument(2, 64), static_cast<int>(argument(3, 2)), argument(4, 10));
}
