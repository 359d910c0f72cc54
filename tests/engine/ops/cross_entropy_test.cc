#include "engine/ops/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/elementwise.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

struct LossCase {
  int64_t rows, valid, columns, shards;  // columns = padded vocabulary, split evenly
};
constexpr LossCase kCases[] = {{1, 1, 1, 1},      {3, 17, 17, 1},  {17, 3, 8, 1},
                               {5, 65, 72, 3},    {3, 33, 128, 4},  // whole shards of padding
                               {2, 9001, 9002, 2}};

double LossOf(std::span<const double> logits, int64_t valid, int64_t target) {
  double highest = logits[0];
  for (int64_t j = 0; j < valid; ++j) highest = std::max(highest, logits[static_cast<size_t>(j)]);
  double sum = 0;
  for (int64_t j = 0; j < valid; ++j) sum += std::exp(logits[static_cast<size_t>(j)] - highest);
  return std::log(sum) - (logits[static_cast<size_t>(target)] - highest);
}

class CrossEntropyTest : public OpTest {
 protected:
  // Runs the three passes over the shards, with the reductions between them done here.
  void Check(const LossCase& c, float logit_scale) {
    const float scale = 0.25f;
    const auto logits = Values(c.rows * c.columns, 1, logit_scale);
    std::vector<int32_t> targets;
    for (int64_t row = 0; row < c.rows; ++row) {
      targets.push_back(static_cast<int32_t>(row * 7 % c.valid));
    }
    const Tensor targets_device = Ids(targets);
    const int64_t width = c.columns / c.shards;
    std::vector<Tensor> shards;
    std::vector<float> highest(static_cast<size_t>(c.rows), -INFINITY);
    for (int64_t s = 0; s < c.shards; ++s) {
      shards.push_back(Input({c.rows, width}, Columns(logits, c, s)));
      Tensor row_max = Output({c.rows}, DType::kF32);
      CrossEntropyMax(shards.back(), {.start = s * width, .valid = c.valid}, row_max);
      const auto local = Read(row_max);
      for (size_t i = 0; i < highest.size(); ++i) highest[i] = std::max(highest[i], local[i]);
    }
    const Tensor row_max = Input({c.rows}, highest, DType::kF32);
    std::vector<float> total(static_cast<size_t>(2 * c.rows));
    for (int64_t s = 0; s < c.shards; ++s) {
      Tensor sums = Output({2, c.rows}, DType::kF32);
      CrossEntropySum(shards[static_cast<size_t>(s)], targets_device,
                      {.start = s * width, .valid = c.valid}, row_max, sums);
      const auto local = Read(sums);
      for (size_t i = 0; i < total.size(); ++i) total[i] += local[i];
    }
    const Tensor sums = Input({2, c.rows}, total, DType::kF32);
    const Tensor scale_device = Input({1}, std::vector<float>{scale}, DType::kF32);
    std::vector<double> expected_losses;
    std::vector<double> expected_gradient;
    Reference(c, logits, targets, scale, expected_losses, expected_gradient);
    std::vector<float> gradient(logits.size());
    for (int64_t s = 0; s < c.shards; ++s) {
      Tensor losses = Output({c.rows}, DType::kF32);
      CrossEntropyGrad(targets_device, {.start = s * width, .valid = c.valid}, row_max, sums,
                       scale_device, shards[static_cast<size_t>(s)], losses);
      ExpectClose(Read(losses), expected_losses, tolerance(DType::kF32).reduction, "losses");
      const auto local = Read(shards[static_cast<size_t>(s)]);
      for (int64_t row = 0; row < c.rows; ++row) {
        std::copy_n(&local[static_cast<size_t>(row * width)], width,
                    &gradient[static_cast<size_t>(row * c.columns + s * width)]);
      }
    }
    ExpectClose(gradient, expected_gradient, tolerance().reduction, "gradient");
  }

 private:
  static std::vector<float> Columns(std::span<const float> logits, const LossCase& c, int64_t s) {
    const int64_t width = c.columns / c.shards;
    std::vector<float> shard;
    for (int64_t row = 0; row < c.rows; ++row) {
      const auto* begin = &logits[static_cast<size_t>(row * c.columns + s * width)];
      shard.insert(shard.end(), begin, begin + width);
    }
    return shard;
  }

  static void Reference(const LossCase& c, std::span<const float> logits,
                        std::span<const int32_t> targets, double scale, std::vector<double>& losses,
                        std::vector<double>& gradient) {
    for (size_t row = 0; row < targets.size(); ++row) {
      const auto values = ToDouble(
          logits.subspan(row * static_cast<size_t>(c.columns), static_cast<size_t>(c.columns)));
      losses.push_back(LossOf(values, c.valid, targets[row]));
      const auto target = static_cast<size_t>(targets[row]);
      const double log_sum = losses.back() + values[target];
      for (size_t j = 0; j < values.size(); ++j) {
        const bool used = static_cast<int64_t>(j) < c.valid;
        const double probability = used ? std::exp(values[j] - log_sum) : 0.0;
        gradient.push_back(scale * (probability - (j == target ? 1.0 : 0.0)));
      }
    }
  }
};

TEST_P(CrossEntropyTest, MatchesItsFormulaOverShardsAndPadding) {
  for (const LossCase& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.valid << " of " << c.columns);
    Check(c, 5.0f);
  }
}

TEST_P(CrossEntropyTest, SurvivesLargeLogits) { Check({3, 65, 72, 3}, 3000.0f); }

TEST_P(CrossEntropyTest, GradientIsTheDerivativeOfTheLoss) {
  const auto logits = Values(17, 9, 3.0f);
  const Tensor targets = Ids(std::vector<int32_t>{4});
  const VocabShard shard = {.start = 0, .valid = 15};
  Tensor x = Input({1, 17}, logits);
  Tensor row_max = Output({1}, DType::kF32);
  Tensor sums = Output({2, 1}, DType::kF32);
  Tensor losses = Output({1}, DType::kF32);
  CrossEntropyMax(x, shard, row_max);
  CrossEntropySum(x, targets, shard, row_max, sums);
  CrossEntropyGrad(targets, shard, row_max, sums, Input({1}, std::vector<float>{1}, DType::kF32), x,
                   losses);
  ExpectClose(Read(x), NumericGradient(ToDouble(logits), [](auto v) { return LossOf(v, 15, 4); }),
              tolerance().reduction, "dlogits");
}

TEST_P(CrossEntropyTest, GradientGoesThroughASoftCap) {
  const SoftCap soft_cap = {.scale = 0.7f, .cap = 2.0f};
  const auto logits = Values(17, 9, 3.0f);
  const Tensor targets = Ids(std::vector<int32_t>{4});
  const VocabShard shard = {.start = 0, .valid = 15};
  Tensor x = Input({1, 17}, logits);
  Tensor row_max = Output({1}, DType::kF32);
  Tensor sums = Output({2, 1}, DType::kF32);
  Tensor losses = Output({1}, DType::kF32);
  ApplySoftCap(soft_cap, x);
  CrossEntropyMax(x, shard, row_max);
  CrossEntropySum(x, targets, shard, row_max, sums);
  CrossEntropyGrad(targets, shard, row_max, sums, Input({1}, std::vector<float>{1}, DType::kF32), x,
                   losses, soft_cap);
  const auto loss = [](std::span<const double> v) {
    std::vector<double> capped;
    for (const double value : v) capped.push_back(2.0 * std::tanh(value * double{0.7f} / 2.0));
    return LossOf(capped, 15, 4);
  };
  ExpectClose(Read(losses), std::vector<double>{loss(ToDouble(logits))}, tolerance().chained,
              "loss");
  ExpectClose(Read(x), NumericGradient(ToDouble(logits), loss), tolerance().chained, "dlogits");
}

INSTANTIATE_TEST_SUITE_P(Devices, CrossEntropyTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
