#include "cost_model/hardware/numerics.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cost_model/closed_form/closed_form.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"

namespace trimtab {
namespace {

Numerics In(Precision precision, const std::string& state) {
  Numerics numerics = {.precision = precision};
  SetOptimizerState(state, numerics);
  return numerics;
}

TEST(OptimizerState, PresetsGoAsFarAsThePrecisionTakesThem) {
  EXPECT_EQ(In(Precision::kBf16, "reduced").master, MasterWeights::kRemainder);
  EXPECT_EQ(In(Precision::kFp8, "minimal").gradients, DType::kBf16);
  EXPECT_EQ(In(Precision::kFp16, "reduced").master, MasterWeights::kFp32)
      << "a remainder completes bf16 weights only";
  EXPECT_EQ(In(Precision::kFp32, "minimal").master, MasterWeights::kFp32);
  EXPECT_EQ(OptimizerStateName(In(Precision::kFp32, "minimal")), "reduced")
      << "gradients stay fp32";
  for (const Precision precision : Precisions()) {
    for (const std::string& state : EveryOptimizerState(precision)) {
      SCOPED_TRACE(fmt::format("{} {}", Name(precision), state));
      EXPECT_EQ(OptimizerStateName(In(precision, state)), state);
      RunConfig run;
      run.model = LoadModelConfig("llama2-7b");
      run.sequence_length = 16;
      run.device = DeviceKind::kCuda;
      run.layout.numerics = In(precision, state);
      const Rule* broken = FirstBrokenRule(run);
      EXPECT_EQ(broken, nullptr) << broken->id;
    }
  }
}

TEST(OptimizerState, HasANameForEveryCombination) {
  EXPECT_EQ(OptimizerStateName(In(Precision::kBf16, "fp32/fp32/fp32")), "full");
  EXPECT_EQ(OptimizerStateName(In(Precision::kBf16, "remainder/fp16/bf16")), "remainder/fp16/bf16");
  EXPECT_EQ(EveryOptimizerState(Precision::kBf16).size(), 16u);
  EXPECT_EQ(EveryOptimizerState(Precision::kFp16).size(), 4u);
  EXPECT_EQ(EveryOptimizerState(Precision::kFp32).size(), 4u);
  for (const char* bad : {"", "ful", "remainder", "remainder/bf16", "fp16/bf16/fp32",
                          "remainder/bf16/fp16", "remainder/bf16/fp32/", "auto"}) {
    EXPECT_THROW(In(Precision::kBf16, bad), UsageError) << bad;
  }
}

TEST(OptimizerState, BytesOfAParameter) {
  EXPECT_EQ(BytesPerParameter(In(Precision::kFp32, "full")), 16);
  EXPECT_EQ(BytesPerParameter(In(Precision::kBf16, "full")), 18);
  EXPECT_EQ(BytesPerParameter(In(Precision::kBf16, "reduced")), 12);
  EXPECT_EQ(BytesPerParameter(In(Precision::kBf16, "minimal")), 10);
  EXPECT_EQ(BytesPerParameter(In(Precision::kBf16, "remainder/fp16/fp32")), 12.0625);
  EXPECT_EQ(BytesPerParameter(In(Precision::kBf16, "remainder/int8/bf16")), 8.0625);
  EXPECT_EQ(BytesPerParameter(In(Precision::kBf16, "full"), OptimizerKind::kSgd), 14);
  EXPECT_EQ(BytesPerParameter(In(Precision::kBf16, "full"), OptimizerKind::kMuon), 14);
}

TEST(Precision, WhatIsWorthTryingDependsOnTheDevice) {
  using Some = std::vector<Precision>;
  const HardwareProfile h200 = BuiltinProfile("h200-sxm");
  const HardwareProfile a100 = BuiltinProfile("a100-80gb");
  const HardwareProfile cpu = BuiltinProfile("cpu");
  const HardwareProfile v100 = BuiltinProfile("v100-32gb");
  EXPECT_EQ(ResolvePrecisions({"auto"}, v100), (Some{Precision::kFp16}));
  EXPECT_EQ(Unpriceable(v100, Precision::kBf16),
            "the hardware profile 'v100-32gb' has no rate of bf16 products; it has fp16, fp32");
  EXPECT_THROW(ResolvePrecisions({"bf16"}, v100), UsageError);
  EXPECT_EQ(ResolvePrecisions({"auto"}, h200), (Some{Precision::kBf16, Precision::kFp8}));
  EXPECT_EQ(ResolvePrecisions({"auto"}, a100), (Some{Precision::kBf16}));
  EXPECT_EQ(ResolvePrecisions({"auto"}, cpu), (Some{Precision::kFp32}));
  EXPECT_EQ(ResolvePrecisions({"fp8", "auto", "fp8"}, h200),
            (Some{Precision::kFp8, Precision::kBf16}));
  EXPECT_THROW(ResolvePrecisions({"fp8"}, a100), UsageError);
  EXPECT_THROW(ResolvePrecisions({"fp9"}, h200), UsageError);
  EXPECT_THROW(ResolvePrecisions({}, h200), UsageError);
}

TEST(Precision, AMachineMeasuredInFp32OnlyPricesNothingElse) {
  HardwareProfile cpu = BuiltinProfile("cpu");
  EXPECT_EQ(Unpriceable(cpu, Precision::kBf16), "") << "the generic one is rough in everything";
  cpu.modes.emplace_back();
  EXPECT_EQ(Unpriceable(cpu, Precision::kFp32), "");
  EXPECT_NE(Unpriceable(cpu, Precision::kBf16).find("calibrate"), std::string::npos);
  cpu.modes.back().precisions["bf16"] = {};
  EXPECT_EQ(Unpriceable(cpu, Precision::kBf16), "");
  EXPECT_NE(Unpriceable(cpu, Precision::kFp8).find("calibrate"), std::string::npos);
}

/// Persistent bytes of Llama 2 7B on one H200, above its fp8 copies.
MemoryEstimate MemoryOfLlama(Precision precision, const std::string& state) {
  RunConfig run;
  run.model = LoadModelConfig("llama2-7b");
  run.layout.numerics = In(precision, state);
  run.device = DeviceKind::kCuda;
  run.global_batch = 1;
  run.sequence_length = 4096;
  return ClosedForm(run, LoadCluster("1xh200")).memory;
}

// 6,738,415,616 parameters at 18, 12 and 10 bytes are 113.0, 75.3 and 62.8 GiB; fp8 keeps each of
// the blocks' 6.476 G matrix weights twice more. Padding of parameters to 128 elements adds nothing
// here, every size being a multiple; scales and scalars a few KiB.
TEST(OptimizerState, MemoryOfLlama2IsWhatTheArithmeticSays) {
  const double parameters = 6738415616.0;
  const double in_fp8 = 32.0 * 4096 * (4 * 4096 + 3 * 11008);
  const double slack = 1 * kMiB;
  const auto persistent = [](Precision precision, const char* state) {
    return static_cast<double>(MemoryOfLlama(precision, state).persistent());
  };
  EXPECT_NEAR(persistent(Precision::kBf16, "full"), 18 * parameters, slack);
  EXPECT_NEAR(persistent(Precision::kBf16, "reduced"), 12 * parameters, slack);
  EXPECT_NEAR(persistent(Precision::kBf16, "minimal"), 10 * parameters, slack);
  EXPECT_NEAR(persistent(Precision::kFp8, "reduced"), 12 * parameters + 2 * in_fp8, slack);
  EXPECT_NEAR(persistent(Precision::kBf16, "full") / kGiB, 113.0, 0.05);
  EXPECT_NEAR(persistent(Precision::kBf16, "reduced") / kGiB, 75.3, 0.05);
  EXPECT_NEAR(persistent(Precision::kFp8, "reduced") / kGiB, 87.4, 0.05);
}

// Of one sequence of 4096 tokens: all activations in bf16 are (16 h + 6 f) bytes a token and layer;
// with fp8 the three norm and MLP inputs (2 h + f elements) become fp8 copies, and the attention's
// output has one beside it: (15 h + 5 f). The head, statistics and the layers' inputs come on top.
TEST(OptimizerState, ActivationsOfLlama2AreWhatTheArithmeticSays) {
  const double h = 4096;
  const double f = 11008;
  const double tokens = 4096;
  const double bf16 = static_cast<double>(MemoryOfLlama(Precision::kBf16, "full").activations);
  const double fp8 = static_cast<double>(MemoryOfLlama(Precision::kFp8, "full").activations);
  EXPECT_NEAR(bf16, 32 * tokens * (16 * h + 6 * f), 0.03 * bf16);
  EXPECT_NEAR(fp8, 32 * tokens * (15 * h + 5 * f), 0.03 * fp8);
}

}  // namespace
}  // namespace trimtab
