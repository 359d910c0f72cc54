#include "engine/ops/moe/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

using Row = std::span<const double>;

std::vector<double> Softmax(Row logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  double sum = 0;
  for (const double logit : logits) sum += p.emplace_back(std::exp(logit - max));
  for (double& value : p) value /= sum;
  return p;
}

std::vector<double> Scores(Row logits, RouterScore score) {
  if (score == RouterScore::kSoftmax) return Softmax(logits);
  std::vector<double> scores;
  for (const double logit : logits) scores.push_back(1.0 / (1.0 + std::exp(-logit)));
  return scores;
}

/// Indices of the `count` highest values, the highest first.
std::vector<int32_t> Highest(const std::vector<double>& values, int64_t count) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&values](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(count));
  return order;
}

/// RouterChoose as its papers describe it: with everything masked that is not allowed.
std::vector<int32_t> ChooseReference(Row logits, const std::vector<double>& bias,
                                     const RouterOptions& o) {
  std::vector<double> scores = Scores(logits, o.score);
  for (size_t e = 0; e < bias.size(); ++e) scores[e] += bias[e];
  const size_t size = scores.size() / static_cast<size_t>(o.num_groups);
  std::vector<double> groups;
  for (size_t first = 0; first < scores.size(); first += size) {
    std::vector<double> part(scores.begin() + static_cast<int64_t>(first),
                             scores.begin() + static_cast<int64_t>(first + size));
    std::sort(part.rbegin(), part.rend());
    const bool two = o.group_score == GroupScore::kSumOfTopTwo && size > 1;
    groups.push_back(two ? part[0] + part[1] : part[0]);
  }
  const std::vector<int32_t> allowed = Highest(groups, o.group_topk);
  for (size_t e = 0; e < scores.size(); ++e) {
    const auto group = static_cast<int32_t>(e / size);
    if (std::find(allowed.begin(), allowed.end(), group) == allowed.end()) scores[e] = -1e300;
  }
  return Highest(scores, o.topk);
}

std::vector<double> WeightsReference(Row logits, std::span<const int32_t> choice,
                                     const RouterOptions& o) {
  std::vector<double> weights;
  if (o.score == RouterScore::kSoftmax && !o.pre_softmax) {
    std::vector<double> chosen;
    for (const int32_t e : choice) chosen.push_back(logits[static_cast<size_t>(e)]);
    weights = Softmax(chosen);
  } else {
    const std::vector<double> scores = Scores(logits, o.score);
    for (const int32_t e : choice) weights.push_back(scores[static_cast<size_t>(e)]);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 1e-20);
  for (double& weight : weights) {
    if (o.norm_topk) weight /= sum;
    weight *= static_cast<double>(o.scaling_factor);
  }
  return weights;
}

/// Both losses of a token.
std::vector<double> LossesReference(Row logits, Row load, const RouterLossOptions& o) {
  std::vector<double> p = Scores(logits, o.score);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  double aux = 0;
  for (size_t e = 0; e < p.size(); ++e) aux += p[e] / sum * load[e];
  const double max = *std::max_element(logits.begin(), logits.end());
  double exponentials = 0;
  for (const double logit : logits) exponentials += std::exp(logit - max);
  const double log_sum_exp = max + std::log(exponentials);
  return {static_cast<double>(o.aux_factor) * aux,
          static_cast<double>(o.z_coeff) * log_sum_exp * log_sum_exp};
}

/// Routers of the families, and what they have in common with nobody: those that `experts` allow.
std::vector<RouterOptions> AllOptions(int64_t experts) {
  std::vector<RouterOptions> all = {
      {.topk = 2},
      {.topk = 1},
      {.topk = 3, .pre_softmax = true},
      {.topk = 3, .pre_softmax = true, .norm_topk = true},
      {.topk = 2, .pre_softmax = true, .scaling_factor = 16.0f, .num_groups = 4, .group_topk = 2},
      {.topk = 4,
       .score = RouterScore::kSigmoid,
       .norm_topk = true,
       .scaling_factor = 2.5f,
       .num_groups = 4,
       .group_topk = 2,
       .group_score = GroupScore::kSumOfTopTwo},
      {.topk = 1, .score = RouterScore::kSigmoid},
      {.topk = 2, .soft_cap = {.cap = 4.0f}},
      {.topk = 2, .pre_softmax = true, .soft_cap = {.cap = 4.0f}},
      {.topk = 2, .score = RouterScore::kSigmoid, .soft_cap = {.cap = 4.0f}}};
  std::erase_if(all, [experts](const RouterOptions& o) {
    return o.topk > experts / o.num_groups * o.group_topk;
  });
  return all;
}

/// The derivative of the soft cap whose result is `y`.
double CapSlope(const SoftCap& soft_cap, double y) {
  if (soft_cap.cap == 0.0f) return 1.0;
  const double t = y / static_cast<double>(soft_cap.cap);
  return 1.0 - t * t;
}

struct Size {
  int64_t rows;
  int64_t experts;
};
constexpr Size kSizes[] = {{1, 4}, {7, 8}, {130, 12}, {33, 64}};

Row RowOf(const std::vector<double>& values, int64_t row, int64_t columns) {
  return Row(values).subspan(static_cast<size_t>(row * columns), static_cast<size_t>(columns));
}

class RouterTest : public OpTest {
 protected:
  Tensor Choices(int64_t rows, int64_t topk, const std::vector<int32_t>& values) {
    return Ids(values).Reshape({rows, topk});
  }
  std::vector<int32_t> ReadIds(const Tensor& tensor) {
    std::vector<int32_t> ids(static_cast<size_t>(tensor.numel()));
    device().CopyToHost(ids.data(), tensor.raw(), tensor.bytes());
    return ids;
  }
  /// The choices of every row by the reference, without a bias.
  static std::vector<int32_t> Chosen(const std::vector<double>& logits, const Size& size,
                                     const RouterOptions& o) {
    std::vector<int32_t> choice;
    for (int64_t row = 0; row < size.rows; ++row) {
      for (const int32_t e : ChooseReference(RowOf(logits, row, size.experts), {}, o)) {
        choice.push_back(e);
      }
    }
    return choice;
  }
};

TEST_P(RouterTest, ChoosesTheHighestScoresOfTheBestGroups) {
  for (const Size& size : kSizes) {
    for (const RouterOptions& o : AllOptions(size.experts)) {
      for (const bool biased : {false, true}) {
        const auto logits = Values(size.rows * size.experts, 1, 3.0f);
        const auto bias = Values(size.experts, 2, biased ? 0.5f : 0.0f);
        const std::vector<double> exact = ToDouble(logits);
        std::vector<int32_t> expected;
        for (int64_t row = 0; row < size.rows; ++row) {
          for (const int32_t e :
               ChooseReference(RowOf(exact, row, size.experts), ToDouble(bias), o)) {
            expected.push_back(e);
          }
        }
        Tensor choice = Choices(size.rows, o.topk, std::vector<int32_t>(expected.size(), -7));
        RouterChoose(Input({size.rows, size.experts}, logits),
                     biased ? Input({size.experts}, bias) : Tensor(), o, choice);
        EXPECT_EQ(ReadIds(choice), expected) << size.experts << " experts, topk " << o.topk;
      }
    }
  }
}

TEST_P(RouterTest, EqualScoresGoToTheLowestNumbers) {
  const RouterOptions o = {.topk = 3};
  Tensor choice = Choices(1, 3, {-7, -7, -7});
  RouterChoose(Input({1, 6}, std::vector<float>{1, 2, 1, 2, 2, 2}), {}, o, choice);
  EXPECT_EQ(ReadIds(choice), (std::vector<int32_t>{1, 3, 4}));
}

TEST_P(RouterTest, LogitsThatAreNoNumbersStillNameExperts) {
  const RouterOptions o = {.topk = 2};
  Tensor choice = Choices(1, 2, {-7, -7});
  RouterChoose(Input({1, 4}, std::vector<float>(4, NAN)), {}, o, choice);
  for (const int32_t e : ReadIds(choice)) EXPECT_TRUE(e >= 0 && e < 4) << e;
}

TEST_P(RouterTest, ChoosesInTurnByPosition) {
  // The second of two ranks has positions 2, 3 and 4, 5 of sequences of 8.
  Tensor choice = Choices(8, 3, std::vector<int32_t>(24, -7));
  RouterChooseInTurn(RowLayout::ZigZag(2, 8, 2, 1), 4, choice);
  const std::vector<int32_t> one = {2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1};
  std::vector<int32_t> expected = one;
  expected.insert(expected.end(), one.begin(), one.end());
  EXPECT_EQ(ReadIds(choice), expected);
}

TEST_P(RouterTest, WeightsMatchTheirFormulaAndDerivative) {
  for (const Size& size : kSizes) {
    for (const RouterOptions& o : AllOptions(size.experts)) {
      const auto logits = Values(size.rows * size.experts, 3, 3.0f);
      const auto dweights = Values(size.rows * o.topk, 4);
      const std::vector<double> exact = ToDouble(logits);
      const std::vector<int32_t> choice = Chosen(exact, size, o);
      std::vector<double> expected;
      std::vector<double> expected_d;
      for (int64_t row = 0; row < size.rows; ++row) {
        const auto of_row = [&](const auto& values) {
          return std::span(values).subspan(static_cast<size_t>(row * o.topk),
                                           static_cast<size_t>(o.topk));
        };
        const Row logits_row = RowOf(exact, row, size.experts);
        const auto chosen = of_row(choice);
        for (const double w : WeightsReference(logits_row, chosen, o)) expected.push_back(w);
        const std::vector<double> d = ToDouble(of_row(dweights));
        const auto gradient = NumericGradient({logits_row.begin(), logits_row.end()}, [&](auto l) {
          return Dot(WeightsReference(l, chosen, o), d);
        });
        for (size_t e = 0; e < gradient.size(); ++e) {
          expected_d.push_back(gradient[e] * CapSlope(o.soft_cap, logits_row[e]));
        }
      }
      const Tensor logits_device = Input({size.rows, size.experts}, logits);
      const Tensor choice_device = Choices(size.rows, o.topk, choice);
      Tensor weights = Output({size.rows, o.topk});
      RouterWeights(logits_device, choice_device, o, weights);
      ExpectClose(Read(weights), expected, tolerance().reduction, "weights");
      Tensor dlogits = Output({size.rows, size.experts});
      RouterWeightsBackward(logits_device, choice_device, Input({size.rows, o.topk}, dweights), o,
                            dlogits);
      ExpectClose(Read(dlogits), expected_d, tolerance().chained, "dlogits");
    }
  }
}

TEST_P(RouterTest, LossesMatchTheirFormulaAndDerivative) {
  constexpr int64_t kSequences = 3;
  for (const Size& size : {Size{3, 4}, Size{21, 8}, Size{129, 60}}) {
    for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
      const SoftCap cap = {.cap = size.experts == 8 ? 4.0f : 0.0f};
      const RouterLossOptions o = {
          .score = score, .aux_factor = 0.75f, .z_coeff = 0.5f, .soft_cap = cap};
      const auto logits = Values(size.rows * size.experts, 5, 3.0f);
      auto load = Values(kSequences * size.experts, 6, 4.0f);
      for (float& value : load) value = std::round(std::abs(value));
      const auto before = Values(size.rows * size.experts, 7);
      const std::vector<double> exact = ToDouble(logits);
      const std::vector<double> loads = ToDouble(load);
      constexpr double kScale = 0.25;
      std::vector<double> expected(static_cast<size_t>(2 * size.rows));
      std::vector<double> expected_d = ToDouble(before);
      for (int64_t row = 0; row < size.rows; ++row) {
        const Row load_row = RowOf(loads, row / (size.rows / kSequences), size.experts);
        const Row logits_row = RowOf(exact, row, size.experts);
        const std::vector<double> losses = LossesReference(logits_row, load_row, o);
        expected[static_cast<size_t>(row)] = losses[0];
        expected[static_cast<size_t>(size.rows + row)] = losses[1];
        const auto gradient = NumericGradient({logits_row.begin(), logits_row.end()}, [&](auto l) {
          const std::vector<double> both = LossesReference(l, load_row, o);
          return kScale * (both[0] + both[1]);
        });
        for (size_t e = 0; e < gradient.size(); ++e) {
          expected_d[static_cast<size_t>(row * size.experts) + e] +=
              gradient[e] * CapSlope(cap, logits_row[e]);
        }
      }
      Tensor dlogits = Input({size.rows, size.experts}, before);
      Tensor losses = Output({2, size.rows});
      RouterLossBackward(
          Input({size.rows, size.experts}, logits), Input({kSequences, size.experts}, load), o,
          Input({1}, std::vector<float>{static_cast<float>(kScale)}), dlogits, losses);
      ExpectClose(Read(losses), expected, tolerance().reduction, "losses");
      ExpectClose(Read(dlogits), expected_d, tolerance().chained, "dlogits");
    }
  }
}

TEST_P(RouterTest, CountsChoicesByRun) {
  const Tensor choice = Choices(4, 2, {0, 2, 2, -1, 1, 2, 2, 0});
  Tensor counts = Output({2, 3});
  CountChoices(choice, counts, /*accumulate=*/false);
  EXPECT_EQ(Read(counts), (std::vector<float>{1, 0, 2, 1, 1, 2}));
  Tensor all = Input({1, 3}, std::vector<float>{10, 20, 30});
  CountChoices(choice, all, /*accumulate=*/true);
  EXPECT_EQ(Read(all), (std::vector<float>{12, 21, 34}));
}

TEST_P(RouterTest, BiasMovesAgainstTheLoad) {
  Tensor bias = Input({4}, std::vector<float>{0.5f, 0, 0, -1});
  UpdateExpertBias(Input({4}, std::vector<float>{9, 3, 6, 6}), 0.25f, bias);
  EXPECT_EQ(Read(bias), (std::vector<float>{0.25f, 0.25f, 0, -1}));
}

INSTANTIATE_TEST_SUITE_P(Devices, RouterTest, testing::ValuesIn(OnlyFp32(AllTargets())),
                         TargetName);

}  // namespace
}  // namespace trimtab
