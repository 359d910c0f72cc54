#include "engine/ops/optimizer/adamw.h"

#include <bit>
#include <cmath>

#include "engine/base/units.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr AdamWTypes kEveryLayout[] = {
    {},
    {.moments = DType::kBf16, .gradient = DType::kBf16},
    {.moments = DType::kF16},
    {.weight = DType::kBf16},
    {.weight = DType::kBf16, .moments = DType::kF16, .gradient = DType::kBf16},
    {.weight = DType::kBf16, .master = DType::kU16},
    {.weight = DType::kBf16, .master = DType::kU16, .moments = DType::kBf16},
    {.weight = DType::kBf16,
     .master = DType::kU16,
     .moments = DType::kF16,
     .gradient = DType::kBf16},
    {.weight = DType::kF16},
    {.weight = DType::kF16, .moments = DType::kBf16},
};

struct Values64 {
  std::vector<double> weight, m, v;
};

struct Step {
  AdamWConfig config;
  double learning_rate;
  double gradient_scale;
  int64_t count;  // from 1
};

// Algorithm 2 of the paper, as written, with the schedule multiplier in the learning rate.
void Reference(const Step& step, std::span<const double> gradient, Values64& state) {
  const double beta1 = step.config.beta1;
  const double beta2 = step.config.beta2;
  const auto count = static_cast<double>(step.count);
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * step.gradient_scale;
    state.m[i] = beta1 * state.m[i] + (1.0 - beta1) * g;
    state.v[i] = beta2 * state.v[i] + (1.0 - beta2) * g * g;
    const double m_hat = state.m[i] / (1.0 - std::pow(beta1, count));
    const double v_hat = state.v[i] / (1.0 - std::pow(beta2, count));
    state.weight[i] -=
        step.learning_rate * (m_hat / (std::sqrt(v_hat) + step.config.epsilon) +
                              static_cast<double>(step.config.weight_decay) * state.weight[i]);
  }
}

std::vector<float> ScalarsOf(const Step& step, float apply = 1.0f) {
  std::vector<float> scalars(static_cast<size_t>(kUpdateScalarCount), 0.0f);
  const auto count = static_cast<double>(step.count);
  scalars[kLearningRate] = static_cast<float>(step.learning_rate);
  scalars[kBiasCorrection] =
      static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(step.config.beta1), count)));
  scalars[kRootCorrection] = static_cast<float>(
      1.0 / std::sqrt(1.0 - std::pow(static_cast<double>(step.config.beta2), count)));
  scalars[kGradientScale] = static_cast<float>(step.gradient_scale);
  scalars[kApply] = apply;
  return scalars;
}

class AdamWTest : public OpTest {
 protected:
  AdamWState MakeState(const AdamWTypes& types, std::span<const float> masters) {
    const auto n = static_cast<int64_t>(masters.size());
    const std::vector<float> zeros(masters.size());
    AdamWState state = {.m = Input({n}, zeros, types.moments),
                        .v = Input({n}, zeros, types.moments)};
    if (types.moments == DType::kF16) {
      const int64_t blocks = CeilDiv(n, kMomentBlock);
      // Of zeros: the scale does not matter.
      state.m_scale =
          Input({blocks}, std::vector<float>(static_cast<size_t>(blocks), 7), DType::kF32);
      state.v_scale =
          Input({blocks}, std::vector<float>(static_cast<size_t>(blocks), 7), DType::kF32);
    }
    if (types.weight == DType::kF32 || types.master == DType::kF32) {
      state.weight = Input({n}, masters, types.weight);
      if (types.weight != DType::kF32) state.master = Input({n}, masters, DType::kF32);
      return state;
    }
    std::vector<float> weights;
    std::vector<uint16_t> remainders;
    for (const float master : masters) {
      weights.push_back(WeightOf(types, master));
      remainders.push_back(MasterRemainder(master));
    }
    state.weight = Input({n}, weights, types.weight);
    state.master = RawBits(remainders);
    return state;
  }

  // What the weight beside this master must be.
  static float WeightOf(const AdamWTypes& types, float master) {
    if (types.master == DType::kF32 || types.weight == DType::kF32) {
      return Rounded(types.weight, {master})[0];
    }
    return std::bit_cast<float>(static_cast<uint32_t>(MasterWeightBits(master)) << 16);
  }

  std::vector<float> Masters(const AdamWTypes& types, const AdamWState& state) {
    if (types.weight == DType::kF32) return Read(state.weight);
    if (types.master == DType::kF32) return Read(state.master);
    const auto weights = Read(state.weight);
    const auto bytes = ReadBytes(state.master);
    std::vector<float> masters;
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(weights[i]) >> 16);
      const auto remainder = static_cast<uint16_t>(bytes[2 * i] | bytes[2 * i + 1] << 8);
      masters.push_back(JoinMaster(bits, remainder));
    }
    return masters;
  }

  std::vector<float> Moments(const Tensor& stored, const Tensor& scales) {
    auto values = Read(stored);
    if (!scales.defined()) return values;
    const auto factors = Read(scales);
    for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[i / kMomentBlock];
    return values;
  }

  void FollowSteps(const AdamWTypes& types, int64_t count) {
    AdamWState state = MakeState(types, RandomValues(count, 1));
    for (int64_t step = 1; step <= 4; ++step) {
      const Step update = {
          .config = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f},
          .learning_rate = 0.01,
          .gradient_scale = 0.5,
          .count = step};
      // From what is stored: what one step rounds is not charged to the next.
      Values64 expected = {ToDouble(Masters(types, state)),
                           ToDouble(Moments(state.m, state.m_scale)),
                           ToDouble(Moments(state.v, state.v_scale))};
      const auto gradient =
          Rounded(types.gradient, RandomValues(count, static_cast<uint32_t>(10 + step)));
      Reference(update, ToDouble(gradient), expected);
      AdamW(update.config, Input({kUpdateScalarCount}, ScalarsOf(update), DType::kF32),
            Input({count}, gradient, types.gradient), state);

      const auto masters = Masters(types, state);
      ExpectClose(masters, expected.weight, tolerance(DType::kF32).elementwise, "master");
      ExpectClose(Moments(state.m, state.m_scale), expected.m, tolerance(types.moments).elementwise,
                  "m");
      ExpectClose(Moments(state.v, state.v_scale), expected.v, tolerance(types.moments).elementwise,
                  "v");
      const auto weights = Read(state.weight);
      for (size_t i = 0; i < masters.size(); ++i) {
        ASSERT_EQ(weights[i], WeightOf(types, masters[i])) << "weight " << i;
      }
    }
  }
};

std::string NameOf(const AdamWTypes& types) {
  return fmt::format("weight {}, master {}, moments {}, gradient {}", Name(types.weight),
                     Name(types.master), Name(types.moments), Name(types.gradient));
}

TEST_P(AdamWTest, FollowsThePaperInEveryLayout) {
  for (const AdamWTypes& types : kEveryLayout) {
    SCOPED_TRACE(NameOf(types));
    for (const int64_t count : {1, 3, 129, 3000, 70001}) {
      if (!Skips(count)) FollowSteps(types, count);
    }
  }
}

TEST_P(AdamWTest, ZeroGradientOnlyDecays) {
  const std::vector<float> zeros(5);
  const Step step = {
      .config = {.beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .weight_decay = 0.25f},
      .learning_rate = 0.5,
      .gradient_scale = 1,
      .count = 1};
  for (const AdamWTypes& types : kEveryLayout) {
    SCOPED_TRACE(NameOf(types));
    AdamWState state = MakeState(types, std::vector<float>(5, 2.0f));
    AdamW(step.config, Input({kUpdateScalarCount}, ScalarsOf(step), DType::kF32),
          Input({5}, zeros, types.gradient), state);
    EXPECT_EQ(Masters(types, state), std::vector<float>(5, 1.75f));
    EXPECT_EQ(Moments(state.m, state.m_scale), zeros);
    EXPECT_EQ(Moments(state.v, state.v_scale), zeros);
  }
}

TEST_P(AdamWTest, ChangesNothingWhereTheNormIsNotFinite) {
  const Step step = {
      .config = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f},
      .learning_rate = 0.5,
      .gradient_scale = 1,
      .count = 1};
  for (const AdamWTypes& types : kEveryLayout) {
    SCOPED_TRACE(NameOf(types));
    AdamWState state = MakeState(types, RandomValues(200, 3));
    const auto contents = [&] {
      std::vector<std::vector<uint8_t>> all;
      for (const Tensor& t :
           {state.weight, state.master, state.m, state.v, state.m_scale, state.v_scale}) {
        if (t.defined()) all.push_back(ReadBytes(t));
      }
      return all;
    };
    const auto before = contents();
    AdamW(step.config, Input({kUpdateScalarCount}, ScalarsOf(step, /*apply=*/0.0f), DType::kF32),
          Input({200}, std::vector<float>(200, NAN), types.gradient), state);
    EXPECT_EQ(contents(), before);
  }
}

// fp16 alone ends at 6e-8: the scales carry moments of any size, each block its own.
TEST_P(AdamWTest, ScalesKeepSmallMoments) {
  constexpr int64_t kCount = 2 * kMomentBlock;
  std::vector<float> gradient(kCount, 3e-12f);
  std::fill_n(gradient.begin(), kMomentBlock, 5.0f);
  const Step step = {.config = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f},
                     .learning_rate = 0.01,
                     .gradient_scale = 1,
                     .count = 1};
  AdamWState state = MakeState({.moments = DType::kF16}, std::vector<float>(kCount, 1.0f));
  AdamW(step.config, Input({kUpdateScalarCount}, ScalarsOf(step), DType::kF32),
        Input({kCount}, gradient, DType::kF32), state);
  const auto m = Moments(state.m, state.m_scale);
  const auto v = Moments(state.v, state.v_scale);
  EXPECT_NEAR(m.front(), 0.5, 0.5 * 0x1p-11);
  EXPECT_NEAR(m.back(), 3e-13, 3e-13 * 0x1p-11);
  EXPECT_NEAR(v.front(), 1.25, 1.25 * 0x1p-11);
  EXPECT_NEAR(v.back(), 4.5e-25, 4.5e-25 * 0x1p-11);
  for (const float stored : Read(state.m)) EXPECT_EQ(stored, kMomentLargest);
}

// Moments of 8 bits: arithmetic is that of what they stand for, and what is stored the nearest of
// the numbers that there are.
TEST_P(AdamWTest, EightBitMomentsAreTheNearestNumbers) {
  constexpr int64_t kCount = 2 * kMomentBlock + 9;
  const Step step = {
      .config = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f},
      .learning_rate = 0.01,
      .gradient_scale = 0.5,
      .count = 3};
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < kCount; ++i) codes.push_back(static_cast<uint8_t>(i * 37 + 11));
  const std::vector<float> scales = {0.5f, 2.0f, 0.25f};
  const auto values = [&](MomentSign sign, const std::vector<uint8_t>& stored,
                          const std::vector<float>& factors) {
    std::vector<float> moments;
    for (size_t i = 0; i < stored.size(); ++i) {
      moments.push_back(MomentValue(sign, stored[i]) *
                        factors[i / static_cast<size_t>(kMomentBlock)]);
    }
    return moments;
  };
  const std::vector<float> weight = RandomValues(kCount, 1);
  const std::vector<float> gradient = RandomValues(kCount, 2);
  AdamWState state = {.weight = Input({kCount}, weight, DType::kF32),
                      .m = RawBytes(codes),
                      .v = RawBytes(codes),
                      .m_scale = Input({3}, scales, DType::kF32),
                      .v_scale = Input({3}, scales, DType::kF32)};
  Values64 expected = {ToDouble(weight), ToDouble(values(MomentSign::kEither, codes, scales)),
                       ToDouble(values(MomentSign::kNever, codes, scales))};
  Reference(step, ToDouble(gradient), expected);
  AdamW(step.config, Input({kUpdateScalarCount}, ScalarsOf(step), DType::kF32),
        Input({kCount}, gradient, DType::kF32), state);
  ExpectClose(Read(state.weight), expected.weight, tolerance(DType::kF32).elementwise, "weight");
  const auto expect_near = [&](MomentSign sign, const Tensor& stored, const Tensor& scale,
                               const std::vector<double>& exact) {
    const std::vector<float> factors = Read(scale);
    const std::vector<uint8_t> actual = ReadBytes(stored);
    for (size_t i = 0; i < exact.size(); ++i) {
      const double largest = factors[i / static_cast<size_t>(kMomentBlock)];
      // The other of two numbers where rounding to fp32 decides.
      EXPECT_NEAR(actual[i], StoredMoment(sign, static_cast<float>(exact[i] / largest)), 1) << i;
    }
  };
  expect_near(MomentSign::kEither, state.m, state.m_scale, expected.m);
  expect_near(MomentSign::kNever, state.v, state.v_scale, expected.v);
}

TEST(MasterTest, AWeightAndItsRemainderAreTheMaster) {
  std::vector<float> masters = RandomValues(100000, 1, 3.0f);
  // Ties, the smallest, the largest (whose weight rounds to infinity), signed zeros.
  for (const uint32_t bits : {0x3f808000u, 0xbf808000u, 0x3f807fffu, 0x3f808001u, 1u, 0x00008000u,
                              0x7f7fffffu, 0xff7fffffu, 0u, 0x80000000u}) {
    masters.push_back(std::bit_cast<float>(bits));
  }
  for (const float master : masters) {
    const uint16_t weight = MasterWeightBits(master);
    const float joined = JoinMaster(weight, MasterRemainder(master));
    ASSERT_EQ(std::bit_cast<uint32_t>(joined), std::bit_cast<uint32_t>(master));
    const auto rounded = std::bit_cast<float>(static_cast<uint32_t>(weight) << 16);
    if (!std::isfinite(rounded)) continue;
    ASSERT_LE(std::abs(rounded - master), std::abs(master) * 0x1p-8f + 1e-40f);
  }
  EXPECT_EQ(MasterWeightBits(std::bit_cast<float>(0x3f808000u)), 0x3f81);  // away from zero
  EXPECT_EQ(MasterWeightBits(std::bit_cast<float>(0xbf808000u)), 0xbf81);
}

class ClipTest : public OpTest {
 protected:
  std::vector<float> Clipped(std::vector<float> sums, float max_norm, float loss_scale) {
    std::vector<float> before(static_cast<size_t>(kUpdateScalarCount), NAN);
    before[kLearningRate] = 0.25f;
    before[kBiasCorrection] = 2.0f;
    before[kRootCorrection] = 3.0f;
    before[kLossScale] = loss_scale;
    Tensor scalars = Input({kUpdateScalarCount}, before, DType::kF32);
    Clip(Input({static_cast<int64_t>(sums.size())}, sums, DType::kF32), max_norm, scalars);
    const auto after = Read(scalars);
    EXPECT_TRUE(std::equal(after.begin(), after.begin() + kGradientNorm, before.begin()));
    return after;
  }
};

TEST_P(ClipTest, ScalesTheNormToItsLimit) {
  const auto within = Clipped({9, 16}, 6.0f, 1.0f);
  EXPECT_FLOAT_EQ(within[kGradientNorm], 5.0f);
  EXPECT_EQ(within[kGradientScale], 1.0f);
  EXPECT_EQ(within[kApply], 1.0f);
  const auto above = Clipped({9, 16, 0}, 2.0f, 1.0f);
  EXPECT_FLOAT_EQ(above[kGradientNorm], 5.0f);
  EXPECT_FLOAT_EQ(above[kGradientScale], 0.4f);
  const auto unclipped = Clipped({25}, 0.0f, 1.0f);
  EXPECT_EQ(unclipped[kGradientScale], 1.0f);
}

TEST_P(ClipTest, TakesTheLossScaleOut) {
  const auto above = Clipped({900, 1600}, 2.0f, 10.0f);
  EXPECT_FLOAT_EQ(above[kGradientNorm], 5.0f);
  EXPECT_FLOAT_EQ(above[kGradientScale], 0.04f);
  const auto within = Clipped({900, 1600}, 0.0f, 10.0f);
  EXPECT_FLOAT_EQ(within[kGradientScale], 0.1f);
}

TEST_P(ClipTest, DoesNotApplyWhatIsNotFinite) {
  for (const float bad : {INFINITY, NAN}) {
    EXPECT_EQ(Clipped({1, bad}, 1.0f, 1.0f)[kApply], 0.0f);
    EXPECT_EQ(Clipped({bad}, 0.0f, 1.0f)[kApply], 0.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, AdamWTest, testing::ValuesIn(OnlyFp32(AllTargets())), TargetName);
INSTANTIATE_TEST_SUITE_P(Devices, ClipTest, testing::ValuesIn(OnlyFp32(AllTargets())), TargetName);

}  // namespace
}  // namespace trimtab
