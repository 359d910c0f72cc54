#include "engine/ops/optimizer/momentum.h"

#include <cmath>

#include "engine/base/units.h"
#include "engine/ops/optimizer/moment_codes.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr float kScale = 0.5f;  // of gradients
constexpr float kRate = 0.01f;

class MomentumTest : public OpTest {
 protected:
  Tensor Scalars(float apply = 1.0f) {
    std::vector<float> scalars(static_cast<size_t>(kUpdateScalarCount), 0.0f);
    scalars[kLearningRate] = kRate;
    scalars[kGradientScale] = kScale;
    scalars[kApply] = apply;
    return Input({kUpdateScalarCount}, scalars, DType::kF32);
  }
};

/// torch.optim.SGD's step, and decay beside it.
struct Expected {
  std::vector<double> weight, momentum, update;
};
Expected Reference(const MomentumConfig& config, std::span<const double> weight,
                   std::span<const double> gradient, std::span<const double> momentum) {
  Expected expected;
  const double rate = static_cast<double>(kRate) * config.learning_rate_factor;
  for (size_t i = 0; i < weight.size(); ++i) {
    const double g = gradient[i] * kScale;
    const double m = config.momentum * momentum[i] + g;
    const double u = config.nesterov ? g + config.momentum * m : m;
    expected.momentum.push_back(m);
    expected.update.push_back(u);
    expected.weight.push_back(weight[i] * (1 - rate * config.weight_decay) -
                              rate * config.update_scale * u);
  }
  return expected;
}

TEST_P(MomentumTest, FollowsSgd) {
  for (const int64_t count : {1, 5, 129, 3000, 70001}) {
    if (Skips(count)) continue;
    for (const bool nesterov : {false, true}) {
      for (const DType stored : {DType::kF32, DType::kBf16}) {
        const MomentumConfig config = {.momentum = 0.875f,
                                       .nesterov = nesterov,
                                       .weight_decay = 0.25f,
                                       .learning_rate_factor = 2.0f,
                                       .update_scale = 1.5f};
        const std::vector<float> master = RandomValues(count, 1);
        const std::vector<float> gradient = Rounded(stored, RandomValues(count, 2));
        const std::vector<float> momentum = Rounded(stored, RandomValues(count, 3));
        const Expected expected =
            Reference(config, ToDouble(master), ToDouble(gradient), ToDouble(momentum));
        MomentumState state = {.weight = {Input({count}, Rounded(stored, master), stored), {}},
                               .momentum = {Input({count}, momentum, stored), {}},
                               .update = Output({count}, stored)};
        if (stored != DType::kF32) state.weight.master = Input({count}, master, DType::kF32);
        MomentumUpdate(config, Scalars(), Input({count}, gradient, stored), state);
        const Tensor& exact = stored == DType::kF32 ? state.weight.weight : state.weight.master;
        ExpectClose(Read(exact), expected.weight, tolerance(DType::kF32).elementwise, "weight");
        ExpectClose(Read(state.momentum.values), expected.momentum, tolerance(stored).elementwise,
                    "momentum");
        ExpectClose(Read(state.update), expected.update, tolerance(stored).elementwise, "update");
      }
    }
  }
}

// The two ends of an update: gradients to an update, an update to weights.
TEST_P(MomentumTest, CanBeTakenInParts) {
  constexpr int64_t kCount = 300;
  const std::vector<float> weight = RandomValues(kCount, 1);
  const std::vector<float> gradient = RandomValues(kCount, 2);
  const MomentumConfig config = {.momentum = 0.5f, .nesterov = true};
  MomentumState first = {.momentum = {Input({kCount}, RandomValues(kCount, 3), DType::kF32), {}},
                         .update = Output({kCount}, DType::kF32)};
  MomentumUpdate(config, Scalars(), Input({kCount}, gradient, DType::kF32), first);
  MomentumState second = {.weight = {Input({kCount}, weight, DType::kF32), {}}};
  MomentumUpdate({.weight_decay = 0.5f}, Scalars(), first.update, second);
  MomentumState both = {.weight = {Input({kCount}, weight, DType::kF32), {}},
                        .momentum = {Input({kCount}, RandomValues(kCount, 3), DType::kF32), {}}};
  MomentumUpdate({.momentum = 0.5f, .nesterov = true, .weight_decay = 0.5f}, Scalars(),
                 Input({kCount}, gradient, DType::kF32), both);
  EXPECT_EQ(Read(second.weight.weight), Read(both.weight.weight));
  EXPECT_EQ(Read(first.momentum.values), Read(both.momentum.values));
}

TEST_P(MomentumTest, ChangesNothingWhereTheNormIsNotFinite) {
  const std::vector<float> ones(40, 1.0f);
  MomentumState state = {.weight = {Input({40}, ones, DType::kF32), {}},
                         .momentum = {Input({40}, ones, DType::kF32), {}}};
  MomentumUpdate({.momentum = 0.9f}, Scalars(/*apply=*/0.0f),
                 Input({40}, std::vector<float>(40, NAN), DType::kF32), state);
  EXPECT_EQ(Read(state.weight.weight), ones);
  EXPECT_EQ(Read(state.momentum.values), ones);
}

TEST_P(MomentumTest, EightBitsHoldTheNearestNumbers) {
  constexpr int64_t kCount = 2 * kMomentBlock + 9;
  const std::vector<float> gradient = RandomValues(kCount, 7, 4.0f);
  MomentumState state = {.momentum = {RawBytes(std::vector<uint8_t>(kCount, 3)),
                                      Input({3}, std::vector<float>(3, 0.0f), DType::kF32)},
                         .update = Output({kCount}, DType::kF32)};
  MomentumUpdate({.momentum = 0.9f}, Scalars(), Input({kCount}, gradient, DType::kF32), state);
  const std::vector<float> exact = Read(state.update);
  const std::vector<float> scales = Read(state.momentum.scales);
  const std::vector<uint8_t> codes = ReadBytes(state.momentum.values);
  for (int64_t block = 0; block < 3; ++block) {
    float largest = 0;
    for (int64_t i = block * kMomentBlock; i < std::min(kCount, (block + 1) * kMomentBlock); ++i) {
      largest = std::max(largest, std::abs(exact[static_cast<size_t>(i)]));
    }
    EXPECT_EQ(scales[static_cast<size_t>(block)], largest);
  }
  for (size_t i = 0; i < codes.size(); ++i) {
    const float scale = scales[i / static_cast<size_t>(kMomentBlock)];
    EXPECT_EQ(codes[i], StoredMoment(MomentSign::kEither, exact[i] * (1.0f / scale))) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, MomentumTest, testing::ValuesIn(OnlyFp32(AllTargets())),
                         TargetName);

TEST(MomentCodesTest, AreTheNumbersOfThePublishedMap) {
  const float* either = kSignedMomentCodes.values;
  const float* positive = kUnsignedMomentCodes.values;
  for (int i = 1; i < kMomentCodes; ++i) {
    EXPECT_LT(either[i - 1], either[i]);
    EXPECT_LT(positive[i - 1], positive[i]);
  }
  EXPECT_EQ(either[0], -1.0f);
  EXPECT_EQ(either[255], 1.0f);
  EXPECT_EQ(either[127], 0.0f);
  EXPECT_EQ(positive[0], 0.0f);
  EXPECT_EQ(positive[255], 1.0f);
  // bitsandbytes: create_dynamic_map(True)[254], [128], create_dynamic_map(False)[1], [254].
  EXPECT_NEAR(either[254], 0.99296875f, 1e-7);
  EXPECT_NEAR(either[128], 5.5e-7f, 1e-12);
  EXPECT_NEAR(positive[1], 3.25e-7f, 1e-12);
  EXPECT_NEAR(positive[254], 0.996484375f, 1e-7);
  for (int i = 0; i < kMomentCodes; ++i) {
    EXPECT_EQ(MomentCode(either, either[i]), i);
    EXPECT_EQ(MomentCode(positive, positive[i]), i);
  }
  EXPECT_EQ(MomentCode(either, 0.0f), 127);
  EXPECT_EQ(MomentCode(either, 0.9963f), 254);
  EXPECT_EQ(MomentCode(either, 0.9966f), 255);
}

}  // namespace
}  // namespace trimtab
