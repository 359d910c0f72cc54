// Loss parity: 200 steps on real text in every precision and optimizer state, against fp32.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/base/io/file.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 200;
constexpr int64_t kWindow = 20;  // losses are compared as means over this many steps

/// Bytes of the book of Genesis; sample i is a window at a place that only i decides.
class GenesisSource final : public TokenSource {
 public:
  GenesisSource() : text_(ReadTextFile("testdata/text/genesis.txt", int64_t{1} << 20)) {}

  void Sample(int64_t index, std::span<int32_t> tokens) const override {
    const uint64_t places = text_.size() - tokens.size();
    // Fibonacci hashing (Knuth, TAOCP 6.4): neighbours land far apart.
    const uint64_t place = (static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15ULL) % places;
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<unsigned char>(text_[place + i]);
    }
  }
  int64_t vocab_size() const override { return 256; }

 private:
  std::string text_;
};

RunConfig ParityRun(bool llama, const std::string& layout, DeviceKind device) {
  RunConfig run = SmallRun(llama);
  run.device = device;
  run.model.vocab_size = 256;
  run.model.hidden_size = 128;
  run.model.num_kv_heads = llama ? 2 : 4;
  run.model.ffn_hidden_size = llama ? 352 : 512;
  run.model.max_sequence_length = 64;
  run.sequence_length = 64;
  run.global_batch = 8;
  run.steps = kSteps;
  run.optimizer.learning_rate = 1e-3;
  run.optimizer.min_learning_rate = 1e-4;
  run.optimizer.warmup_steps = 20;
  run.layout = ParseLayout((layout.starts_with("mbs=") ? "" : "mbs=8,") + layout, 0);
  return run;
}

struct ParityCase {
  const char* layout;
  const char* against;  // nullptr: fp32
  /// Largest relative difference of the mean losses of the last window, and of any window.
  double last;
  double any;
};

// Training at a high learning rate is chaotic: rounding decides which of many equally good paths a
// run takes. At the rate above, differences are those of precision. Those seen reach
// at most three quarters of the bounds.
constexpr double kFp8Last = 0.0025;
constexpr double kFp8Any = 0.005;

constexpr ParityCase kCases[] = {
    {"precision=bf16", nullptr, 0.001, 0.002},
    {"precision=bf16,master=remainder", nullptr, 0.001, 0.002},
    {"precision=bf16,master=remainder,moments=bf16", nullptr, 0.001, 0.002},
    {"precision=bf16,master=remainder,moments=bf16,grads=bf16", nullptr, 0.001, 0.002},
    // Eight micro batches: bf16 gradients are added up, and rounded each time.
    {"mbs=1,precision=bf16,grads=bf16", nullptr, 0.001, 0.002},
    {"precision=bf16,moments=fp16", nullptr, 0.001, 0.002},
    {"precision=fp16", nullptr, 0.001, 0.002},
    {"precision=fp8", nullptr, kFp8Last, kFp8Any},
    {"precision=fp8", "precision=bf16", kFp8Last, kFp8Any},
    {"precision=fp8,master=remainder,moments=bf16", "precision=bf16", kFp8Last, kFp8Any},
};

/// Mean loss of each window of kWindow steps.
std::vector<double> Windows(const std::vector<double>& losses) {
  std::vector<double> means(losses.size() / kWindow);
  for (size_t i = 0; i < means.size() * kWindow; ++i) means[i / kWindow] += losses[i] / kWindow;
  return means;
}

class ParityTest : public testing::TestWithParam<std::tuple<bool, DeviceKind>> {
 protected:
  const std::vector<double>& WindowsOf(const RunConfig& run) {
    const bool fast = run.fp8.fast_gradients;
    std::vector<double>& windows =
        done_[ToString(run.layout) + run.fp8.scaling + (fast ? " fast" : "")];
    if (windows.empty()) windows = Windows(TrainOnRanks(run, source_, kSteps).losses);
    return windows;
  }

  /// Trains `run` and prints a line that compares it with `reference`.
  void Compare(const std::string& name, const RunConfig& run, const std::string& reference_name,
               const std::vector<double>& reference, double last_bound, double any_bound) {
    const std::vector<double>& windows = WindowsOf(run);
    const auto difference = [&](size_t i) {
      return std::abs(windows[i] - reference[i]) / reference[i];
    };
    double any = 0;
    for (size_t i = 0; i < windows.size(); ++i) any = std::max(any, difference(i));
    const double last = difference(windows.size() - 1);
    fmt::print("| {:<60} | {:<5} | {:.4f} | {:.4f} | {:.2f} % | {:.2f} % |\n", name, reference_name,
               windows.back(), reference.back(), 100 * last, 100 * any);
    EXPECT_LE(last, last_bound) << name;
    EXPECT_LE(any, any_bound) << name;
  }

 private:
  GenesisSource source_;
  std::map<std::string, std::vector<double>> done_;
};

TEST_P(ParityTest, EveryPrecisionLearnsLikeFp32) {
  const auto& [llama, device] = GetParam();
  TRIMTAB_SKIP_WITHOUT_DEVICE(device);
  const std::vector<double> fp32 = WindowsOf(ParityRun(llama, "precision=fp32", device));
  EXPECT_LT(fp32.back(), 0.8 * fp32.front()) << "200 steps must teach something";
  fmt::print("{} on {}: mean loss of steps {} to {}, against that of another precision\n",
             llama ? "llama" : "gpt2", Name(device), kSteps - kWindow + 1, kSteps);
  fmt::print("| {:<60} | {:<5} | {:<6} | {:<6} | {:<6} | {:<6} |\n", "precision", "to", "loss",
             "its", "last", "any");
  for (const ParityCase& c : kCases) {
    const std::vector<double> reference =
        c.against == nullptr ? fp32 : WindowsOf(ParityRun(llama, c.against, device));
    Compare(c.layout, ParityRun(llama, c.layout, device), c.against == nullptr ? "fp32" : "bf16",
            reference, c.last, c.any);
  }
  RunConfig current = ParityRun(llama, "precision=fp8", device);
  current.fp8.scaling = "current";
  Compare("precision=fp8 with current scaling", current, "bf16",
          WindowsOf(ParityRun(llama, "precision=bf16", device)), kFp8Last, kFp8Any);
  RunConfig fast = ParityRun(llama, "precision=fp8", device);
  fast.fp8.fast_gradients = true;
  Compare("precision=fp8 with fast_gradients", fast, "bf16",
          WindowsOf(ParityRun(llama, "precision=bf16", device)), kFp8Last, kFp8Any);
}

INSTANTIATE_TEST_SUITE_P(Families, ParityTest,
                         testing::Combine(testing::Bool(),
                                          testing::Values(DeviceKind::kCpu, DeviceKind::kCuda)),
                         [](const auto& param_info) {
                           return fmt::format("{}_{}",
                                              std::get<0>(param_info.param) ? "llama" : "gpt2",
                                              Name(std::get<1>(param_info.param)));
                         });

}  // namespace
}  // namespace trimtab
