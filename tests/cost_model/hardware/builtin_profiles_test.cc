// Steps on the GPUs that have a profile, against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cost_model/closed_form/closed_form.h"
#include "engine/base/error.h"
#include "engine/families/load_config.h"

namespace trimtab {
namespace {

/// Seconds of a step in which products take most of the time.
double ComputeBoundStep(const std::string& cluster, const char* precision) {
  RunConfig run;
  run.model = LoadModelConfig("llama2-7b");
  run.device = DeviceKind::kCuda;
  run.global_batch = 32;
  run.sequence_length = 4096;
  run.layout = ParseLayout("dp=8,zero=1,mbs=2,precision=" + std::string(precision), 0);
  return ClosedForm(run, LoadCluster(cluster)).step_time_s;
}

// Peaks in 16 bits: 989 TFLOP/s (at 3.35, 4.0 and 4.9 TB/s, H100 and both GH200), 835, 756, 362,
// 150 and 148; 165 and 71 of GeForce cards, 125 and 70 of A10 and A10G, 121 of L4.
TEST(BuiltinProfiles, GpusAreAsFastAsTheirDatasheetsSay) {
  std::vector<double> steps_s;
  for (const char* kind : {"gh200-144gb", "gh200", "h100", "h100-nvl", "h100-pcie", "l40s"}) {
    steps_s.push_back(ComputeBoundStep(std::string("8x") + kind, "bf16"));
  }
  EXPECT_TRUE(std::ranges::is_sorted(steps_s));
  const auto ratio = [](const char* slow, const char* fast) {
    return ComputeBoundStep(slow, "bf16") / ComputeBoundStep(fast, "bf16");
  };
  // 989 / 148 is 6.7 of what products take; the rest is as fast, or faster.
  EXPECT_GT(ratio("8xh20", "8xh100"), 4);
  EXPECT_LT(ratio("8xh20", "8xh100"), 7);
  EXPECT_GT(ratio("8xrtx-3090", "8xrtx-4090"), 1.2);
  EXPECT_GT(ratio("8xa10g", "8xa10"), 1.1);
  EXPECT_GT(ratio("8xl4", "8xl40"), 1.2);
  EXPECT_GT(ComputeBoundStep("8xt4", "fp16"), 1.5 * ComputeBoundStep("8xv100", "fp16"));
  EXPECT_GT(ComputeBoundStep("8xv100", "fp16"), ComputeBoundStep("8xa100", "fp16"));
}

TEST(BuiltinProfiles, RefusesWhatAGpuCannotMultiply) {
  try {
    ComputeBoundStep("8xv100", "bf16");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("no rate of bf16 products; it has fp16, fp32"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trimtab
