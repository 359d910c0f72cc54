#include "engine/ops/vocabulary/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ops/elementwise/elementwise.h"
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
  // Runs the op of the whole vocabulary, or those of its shards, whose parts are put together here.
  void Check(const LossCase& c, float logit_scale) {
    const auto logits = Values(c.rows * c.columns, 1, logit_scale);
    std::vector<int32_t> targets;
    for (int64_t row = 0; row < c.rows; ++row) {
      targets.push_back(static_cast<int32_t>(row * 7 % c.valid));
    }
    const float scale = 0.25f;
    std::vector<double> losses;
    std::vector<double> gradient;
    Reference(c, logits, targets, scale, losses, gradient);
    if (c.shards == 1) {
      Tensor x = Input({c.rows, c.columns}, logits);
      Tensor out = Output({c.rows}, DType::kF32);
      CrossEntropy(Ids(targets), c.valid, Scalar(scale), x, out);
      ExpectClose(Read(out), losses, tolerance(DType::kF32).reduction, "losses");
      ExpectClose(Read(x), gradient, tolerance().reduction, "gradient");
    }
    CheckShards(c, logits, targets, scale, losses, gradient);
  }

  Tensor Scalar(float value) { return Input({1}, std::vector<float>{value}, DType::kF32); }

 private:
  void CheckShards(const LossCase& c, std::span<const float> logits,
                   std::span<const int32_t> targets, float scale,
                   const std::vector<double>& expected_losses,
                   const std::vector<double>& expected_gradient) {
    const Tensor ids = Ids(targets);
    const int64_t width = c.columns / c.shards;
    std::vector<Tensor> shards;
    std::vector<float> all;
    for (int64_t s = 0; s < c.shards; ++s) {
      shards.push_back(Input({c.rows, width}, Columns(logits, c, s)));
      Tensor own = Output({3, c.rows}, DType::kF32);
      CrossEntropyParts(shards.back(), ids, {.start = s * width, .valid = c.valid}, own);
      const auto values = Read(own);
      all.insert(all.end(), values.begin(), values.end());
    }
    const Tensor parts = Input({c.shards, 3, c.rows}, all, DType::kF32);
    std::vector<float> gradient(logits.size());
    for (int64_t s = 0; s < c.shards; ++s) {
      Tensor losses = Output({c.rows}, DType::kF32);
      Tensor& shard = shards[static_cast<size_t>(s)];
      CrossEntropyGrad(ids, {.start = s * width, .valid = c.valid}, parts, Scalar(scale), shard,
                       losses);
      ExpectClose(Read(losses), expected_losses, tolerance(DType::kF32).reduction, "losses");
      const auto local = Read(shard);
      for (int64_t row = 0; row < c.rows; ++row) {
        std::copy_n(&local[static_cast<size_t>(row * width)], width,
                    &gradient[static_cast<size_t>(row * c.columns + s * width)]);
      }
    }
    ExpectClose(gradient, expected_gradient, tolerance().reduction, "gradient of shards");
  }

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

// Longer than what a block of a GPU keeps of a row.
TEST_P(CrossEntropyTest, ReadsAgainWhatItDoesNotKeepOfARow) {
  const int64_t columns = GetParam().dtype == DType::kF32 ? 25152 + 1111 : 50304 + 1111;
  Check({1, columns - 3, columns, 1}, 5.0f);
}

TEST_P(CrossEntropyTest, ALogitThatOverflowedMakesTheLossNaN) {
  std::vector<float> logits = Values(17, 3);
  logits[5] = std::numeric_limits<float>::infinity();
  Tensor x = Input({1, 17}, logits);
  Tensor losses = Output({1}, DType::kF32);
  CrossEntropy(Ids(std::vector<int32_t>{4}), 15, Scalar(1), x, losses);
  EXPECT_TRUE(std::isnan(Read(losses)[0]));
}

TEST_P(CrossEntropyTest, ATargetBelowZeroIsNone) {
  const auto logits = Values(3 * 17, 3, 5.0f);
  const auto run = [&](std::span<const int32_t> targets, bool whole, Tensor& losses) {
    Tensor x = Input({3, 17}, logits);
    const Tensor ids = Ids(targets);
    losses = Output({3}, DType::kF32);
    if (whole) {
      CrossEntropy(ids, 15, Scalar(2), x, losses);
      return Read(x);
    }
    Tensor parts = Output({3, 3}, DType::kF32);
    CrossEntropyParts(x, ids, {.start = 0, .valid = 15}, parts);
    const Tensor all = Input({1, 3, 3}, Read(parts), DType::kF32);
    CrossEntropyGrad(ids, {.start = 0, .valid = 15}, all, Scalar(2), x, losses);
    return Read(x);
  };
  for (const bool whole : {true, false}) {
    Tensor losses;
    Tensor all_losses;
    const auto gradient = run(std::vector<int32_t>{4, -1, 9}, whole, losses);
    const auto all = run(std::vector<int32_t>{4, 7, 9}, whole, all_losses);
    EXPECT_EQ(Read(losses)[1], 0.0f);
    for (const size_t row : {0u, 2u}) EXPECT_EQ(Read(losses)[row], Read(all_losses)[row]);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(gradient[i], i / 17 == 1 ? 0.0f : all[i]);
  }
}

TEST_P(CrossEntropyTest, GradientIsTheDerivativeOfTheLoss) {
  const auto logits = Values(17, 9, 3.0f);
  Tensor x = Input({1, 17}, logits);
  Tensor losses = Output({1}, DType::kF32);
  CrossEntropy(Ids(std::vector<int32_t>{4}), 15, Scalar(1), x, losses);
  ExpectClose(Read(x), NumericGradient(ToDouble(logits), [](auto v) { return LossOf(v, 15, 4); }),
              tolerance().reduction, "dlogits");
}

TEST_P(CrossEntropyTest, GradientGoesThroughASoftCap) {
  const SoftCap soft_cap = {.scale = 0.7f, .cap = 2.0f};
  const auto logits = Values(17, 9, 3.0f);
  const Tensor targets = Ids(std::vector<int32_t>{4});
  Tensor x = Input({1, 17}, logits);
  Tensor losses = Output({1}, DType::kF32);
  ApplySoftCap(soft_cap, x);
  Tensor shard = Input({1, 17}, Read(x));
  CrossEntropy(targets, 15, Scalar(1), x, losses, soft_cap);
  const auto loss = [](std::span<const double> v) {
    std::vector<double> capped;
    for (const double value : v) capped.push_back(2.0 * std::tanh(value * double{0.7f} / 2.0));
    return LossOf(capped, 15, 4);
  };
  const auto gradient = NumericGradient(ToDouble(logits), loss);
  ExpectClose(Read(losses), std::vector<double>{loss(ToDouble(logits))}, tolerance().chained,
              "loss");
  ExpectClose(Read(x), gradient, tolerance().chained, "dlogits");
  Tensor parts = Output({3, 1}, DType::kF32);
  CrossEntropyParts(shard, targets, {.start = 0, .valid = 15}, parts);
  CrossEntropyGrad(targets, {.start = 0, .valid = 15}, parts.Reshape({1, 3, 1}), Scalar(1), shard,
                   losses, soft_cap);
  ExpectClose(Read(shard), gradient, tolerance().chained, "dlogits of a shard");
}

INSTANTIATE_TEST_SUITE_P(Devices, CrossEntropyTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
