#include "engine/ops/adamw.h"

#include <cmath>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

struct State {
  std::vector<double> parameter, m, v;
};

// Algorithm 2 of the paper, as written, with the schedule multiplier in the learning rate.
void Reference(const AdamWStep& s, std::span<const double> gradient, State& state) {
  const auto count = static_cast<double>(s.step);
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * s.gradient_scale;
    state.m[i] = s.beta1 * state.m[i] + (1.0 - s.beta1) * g;
    state.v[i] = s.beta2 * state.v[i] + (1.0 - s.beta2) * g * g;
    const double m_hat = state.m[i] / (1.0 - std::pow(static_cast<double>(s.beta1), count));
    const double v_hat = state.v[i] / (1.0 - std::pow(static_cast<double>(s.beta2), count));
    state.parameter[i] -= s.learning_rate * (m_hat / (std::sqrt(v_hat) + s.epsilon) +
                                             s.weight_decay * state.parameter[i]);
  }
}

using AdamWTest = OpTest;

TEST_P(AdamWTest, FollowsThePaperOverSeveralSteps) {
  for (const int64_t count : {1, 3, 17, 65, 50001}) {
    const auto parameter = RandomValues(count, 1);
    State expected = {ToDouble(parameter), std::vector<double>(parameter.size()),
                      std::vector<double>(parameter.size())};
    Tensor parameter_device = Input({count}, parameter);
    Tensor m = Input({count}, std::vector<float>(parameter.size()));
    Tensor v = Input({count}, std::vector<float>(parameter.size()));
    for (int64_t step = 1; step <= 4; ++step) {
      const AdamWStep update = {.learning_rate = 0.01f,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .epsilon = 1e-8f,
                                .weight_decay = 0.1f,
                                .gradient_scale = 0.5f,
                                .step = step};
      const auto gradient = RandomValues(count, static_cast<uint32_t>(10 + step));
      Reference(update, ToDouble(gradient), expected);
      AdamW(update, Input({count}, gradient), parameter_device, m, v);
    }
    ExpectClose(Read(parameter_device), expected.parameter, tolerance().elementwise, "parameter");
    ExpectClose(Read(m), expected.m, tolerance().elementwise, "m");
    ExpectClose(Read(v), expected.v, tolerance().elementwise, "v");
  }
}

TEST_P(AdamWTest, ZeroGradientOnlyDecays) {
  const std::vector<float> zeros(5);
  Tensor parameter = Input({5}, std::vector<float>(5, 2.0f));
  Tensor m = Input({5}, zeros);
  Tensor v = Input({5}, zeros);
  const AdamWStep update = {.learning_rate = 0.5f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .epsilon = 1e-8f,
                            .weight_decay = 0.25f};
  AdamW(update, Input({5}, zeros), parameter, m, v);
  EXPECT_EQ(Read(parameter), std::vector<float>(5, 1.75f));
  EXPECT_EQ(Read(m), zeros);
  EXPECT_EQ(Read(v), zeros);
}

INSTANTIATE_TEST_SUITE_P(Devices, AdamWTest, testing::ValuesIn(CpuTargets()), TargetName);

}  // namespace
}  // namespace trimtab
