#include "engine/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

// Sequences below, at and past the kernel's tiles; grouped and plain heads; odd head sizes.
const std::vector<AttentionShape>& Cases() {
  static const std::vector<AttentionShape> cases = {
      {.batch = 1, .sequence = 1, .heads = 1, .kv_heads = 1, .head_size = 1},
      {.batch = 2, .sequence = 3, .heads = 2, .kv_heads = 2, .head_size = 5},
      {.batch = 3, .sequence = 17, .heads = 4, .kv_heads = 2, .head_size = 4},
      {.batch = 1, .sequence = 64, .heads = 1, .kv_heads = 1, .head_size = 3},
      {.batch = 1, .sequence = 65, .heads = 3, .kv_heads = 1, .head_size = 2},
      {.batch = 1, .sequence = 130, .heads = 1, .kv_heads = 1, .head_size = 3},
      {.batch = 1,
       .sequence = 9,
       .heads = 2,
       .kv_heads = 1,
       .head_size = 4,
       .scores = {.scale = 0.8, .soft_cap = 1.5}},
      {.batch = 2,
       .sequence = 8,
       .heads = 2,
       .kv_heads = 2,
       .head_size = 3,
       .scores = {.alibi_heads = 6, .alibi_first = 3}},
      {.batch = 1,
       .sequence = 7,
       .heads = 1,
       .kv_heads = 1,
       .head_size = 3,
       .scores = {.window = 1}},
      {.batch = 1,
       .sequence = 78,
       .heads = 2,
       .kv_heads = 1,
       .head_size = 2,
       .scores = {.window = 10}},
      {.batch = 1,
       .sequence = 140,
       .heads = 1,
       .kv_heads = 1,
       .head_size = 2,
       .scores = {.scale = 0.9, .soft_cap = 2, .window = 67, .alibi_heads = 4, .alibi_first = 1}},
      {.batch = 2, .sequence = 11, .heads = 4, .kv_heads = 2, .head_size = 5, .value_head_size = 3},
      {.batch = 1,
       .sequence = 19,
       .heads = 2,
       .kv_heads = 2,
       .head_size = 2,
       .scores = {.window = 9},
       .value_head_size = 4},
  };
  return cases;
}

struct Result {
  std::vector<double> out;
  std::vector<double> log_sum_exp;
};

// Of 6 heads and of 4, from the paper: 2^-2, 2^-4, ... for 4; then 2^-1 and 2^-3, the odd ones
// of 8.
double SlopeOf(const ScoreOptions& scores, int64_t head) {
  static const double of_four[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
  return scores.alibi_heads == 0 ? 0.0 : of_four[scores.alibi_first + head];
}

double ScoreOf(const AttentionShape& s, double product, int64_t head, int64_t distance) {
  const ScoreOptions& o = s.scores;
  double score = product * (o.scale > 0 ? o.scale : 1 / std::sqrt(double(s.head_size)));
  if (o.soft_cap > 0) score = o.soft_cap * std::tanh(score / o.soft_cap);
  return score - SlopeOf(o, head) * static_cast<double>(distance);
}

Result Reference(const AttentionShape& s, std::span<const double> qkv) {
  Result result;
  result.out.resize(static_cast<size_t>(s.tokens() * s.out_size()));
  result.log_sum_exp.resize(static_cast<size_t>(s.batch * s.heads * s.sequence));
  const auto at = [&](int64_t b, int64_t t, int64_t column) {
    return qkv[static_cast<size_t>((b * s.sequence + t) * s.qkv_size() + column)];
  };
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t query = h * s.head_size;
      const int64_t key = (s.heads + h / (s.heads / s.kv_heads)) * s.head_size;
      const int64_t value =
          (s.heads + s.kv_heads) * s.head_size + h / (s.heads / s.kv_heads) * s.value_size();
      for (int64_t t = 0; t < s.sequence; ++t) {
        std::vector<double> weights;
        double sum = 0;
        const int64_t from =
            s.scores.window > 0 ? std::max<int64_t>(0, t + 1 - s.scores.window) : 0;
        for (int64_t u = from; u <= t; ++u) {
          double product = 0;
          for (int64_t d = 0; d < s.head_size; ++d)
            product += at(b, t, query + d) * at(b, u, key + d);
          weights.push_back(std::exp(ScoreOf(s, product, h, t - u)));
          sum += weights.back();
        }
        result.log_sum_exp[static_cast<size_t>((b * s.heads + h) * s.sequence + t)] = std::log(sum);
        double* out =
            &result.out[static_cast<size_t>(((b * s.sequence + t) * s.heads + h) * s.value_size())];
        for (int64_t u = from; u <= t; ++u) {
          for (int64_t d = 0; d < s.value_size(); ++d) {
            out[d] += weights[static_cast<size_t>(u - from)] / sum * at(b, u, value + d);
          }
        }
      }
    }
  }
  return result;
}

struct Expected {
  Result forward;
  std::vector<double> dqkv;
};

// By shape and storage type: the differences take longer than the op, and every device has the
// same.
const Expected& ExpectedOf(const AttentionShape& s, DType dtype, std::span<const float> qkv,
                           std::span<const float> dout) {
  static std::map<std::tuple<int64_t, int64_t, DType>, Expected> known;
  const auto key = std::tuple{s.sequence, s.heads, dtype};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const auto dout64 = ToDouble(dout);
  const auto loss = [&](std::span<const double> v) { return Dot(Reference(s, v).out, dout64); };
  const auto qkv64 = ToDouble(qkv);
  return known[key] = {Reference(s, qkv64), NumericGradient(qkv64, loss)};
}

using AttentionTest = OpTest;

TEST_P(AttentionTest, MatchesItsFormulaAndDerivative) {
  for (const AttentionShape& s : Cases()) {
    SCOPED_TRACE(testing::Message()
                 << "T " << s.sequence << " heads " << s.heads << "/" << s.kv_heads);
    const Shape qkv_shape = {s.tokens(), s.qkv_size()};
    const Shape out_shape = {s.tokens(), s.out_size()};
    const auto qkv = Values(qkv_shape.numel(), 1, 2.0f);
    const auto dout = Values(out_shape.numel(), 2);

    const Tensor qkv_device = Input(qkv_shape, qkv);
    Tensor out = Output(out_shape);
    Tensor log_sum_exp = Output({s.batch, s.heads, s.sequence}, DType::kF32);
    AttentionForward(s, qkv_device, out, log_sum_exp);
    const auto& [expected, gradient] = ExpectedOf(s, dtype(), qkv, dout);
    ExpectClose(Read(out), expected.out, tolerance().product, "out");
    ExpectClose(Read(log_sum_exp), expected.log_sum_exp, tolerance(DType::kF32).product,
                "log_sum_exp");

    Tensor dqkv = Output(qkv_shape);
    AttentionBackward(s, qkv_device, out, log_sum_exp, Input(out_shape, dout), dqkv);
    ExpectClose(Read(dqkv), gradient, tolerance().chained, "dqkv");
  }
}

TEST(AlibiSlope, IsThePublishedOne) {
  EXPECT_FLOAT_EQ(AlibiSlope(0, 8), 0.5f);
  EXPECT_FLOAT_EQ(AlibiSlope(7, 8), 0.00390625f);
  EXPECT_FLOAT_EQ(AlibiSlope(8, 12), 0.70710678f);
  EXPECT_FLOAT_EQ(AlibiSlope(11, 12), 0.08838835f);
  EXPECT_FLOAT_EQ(AlibiSlope(0, 112), 0.9170040432046712f);
  EXPECT_FLOAT_EQ(AlibiSlope(63, 112), 0.00390625f);
  EXPECT_FLOAT_EQ(AlibiSlope(64, 112), 0.9576032806985737f);
  EXPECT_FLOAT_EQ(AlibiSlope(111, 112), 0.016316777850428427f);
}

TEST(AttentionRecord, CountsTheScoresThatAWindowLeaves) {
  AttentionShape s = {.batch = 2, .sequence = 6, .heads = 3, .kv_heads = 3, .head_size = 4};
  EXPECT_EQ(AttentionForwardRecord(s).flops, 2 * 2 * 3 * 4 * 2 * (1 + 2 + 3 + 4 + 5 + 6));
  s.scores.window = 2;
  EXPECT_EQ(AttentionForwardRecord(s).flops, 2 * 2 * 3 * 4 * 2 * (1 + 2 + 2 + 2 + 2 + 2));
  s.scores.window = 9;
  EXPECT_EQ(AttentionBackwardRecord(s).flops, 5 * 2 * 3 * 4 * 2 * 21);
  // Two products and three in the scores' columns; of values one, and two.
  s.value_head_size = 1;
  EXPECT_EQ(AttentionForwardRecord(s).flops, 2 * 3 * 2 * 21 * (4 + 1));
  EXPECT_EQ(AttentionBackwardRecord(s).flops, 2 * 3 * 2 * 21 * (3 * 4 + 2 * 1));
}

TEST_P(AttentionTest, SurvivesScoresOfAnySize) {
  const AttentionShape s = {.batch = 1, .sequence = 70, .heads = 1, .kv_heads = 1, .head_size = 4};
  const Shape qkv_shape = {s.tokens(), s.qkv_size()};
  const auto qkv = Values(qkv_shape.numel(), 3, 40.0f);  // scores up to +-3200
  Tensor out = Output({s.tokens(), s.head_size});
  Tensor log_sum_exp = Output({1, 1, s.sequence}, DType::kF32);
  AttentionForward(s, Input(qkv_shape, qkv), out, log_sum_exp);
  for (const float value : Read(out)) ASSERT_LE(std::abs(value), 40.0f);
  for (const float value : Read(log_sum_exp)) ASSERT_TRUE(std::isfinite(value));
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
