#include "engine/ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <tuple>

#include "tests/engine/ops/op_inputs.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

// Sequences below, at and past the kernel's tiles; grouped and plain heads; odd head sizes.
const std::vector<AttentionShape>& Cases() {
  static const std::vector<AttentionShape> cases = {
      {.rows = {1, 1}, .heads = 1, .kv_heads = 1, .head_size = 1},
      {.rows = {2, 3}, .heads = 2, .kv_heads = 2, .head_size = 5},
      {.rows = {3, 17}, .heads = 4, .kv_heads = 2, .head_size = 4},
      {.rows = {1, 64}, .heads = 1, .kv_heads = 1, .head_size = 3},
      {.rows = {1, 65}, .heads = 3, .kv_heads = 1, .head_size = 2},
      {.rows = {1, 130}, .heads = 1, .kv_heads = 1, .head_size = 3},
      {.rows = {1, 9},
       .heads = 2,
       .kv_heads = 1,
       .head_size = 4,
       .scores = {.scale = 0.8, .soft_cap = 1.5}},
      {.rows = {2, 8},
       .heads = 2,
       .kv_heads = 2,
       .head_size = 3,
       .scores = {.alibi_heads = 6, .alibi_first = 3}},
      {.rows = {1, 7}, .heads = 1, .kv_heads = 1, .head_size = 3, .scores = {.window = 1}},
      {.rows = {1, 78}, .heads = 2, .kv_heads = 1, .head_size = 2, .scores = {.window = 10}},
      {.rows = {1, 140},
       .heads = 1,
       .kv_heads = 1,
       .head_size = 2,
       .scores = {.scale = 0.9, .soft_cap = 2, .window = 67, .alibi_heads = 4, .alibi_first = 1}},
      {.rows = {2, 11}, .heads = 4, .kv_heads = 2, .head_size = 5, .value_head_size = 3},
      {.rows = {1, 19},
       .heads = 2,
       .kv_heads = 2,
       .head_size = 2,
       .scores = {.window = 9},
       .value_head_size = 4},
  };
  return cases;
}

// Where documents begin in each sequence of the cases that are also run packed.
constexpr std::initializer_list<int64_t> kBegins = {0, 1, 5, 64, 66, 129};

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

Result Reference(const AttentionShape& s, bool packed, std::span<const double> qkv) {
  Result result;
  result.out.resize(static_cast<size_t>(s.tokens() * s.out_size()));
  result.log_sum_exp.resize(static_cast<size_t>(s.rows.batch * s.heads * s.rows.sequence));
  const auto at = [&](int64_t b, int64_t t, int64_t column) {
    return qkv[static_cast<size_t>((b * s.rows.sequence + t) * s.qkv_size() + column)];
  };
  for (int64_t b = 0; b < s.rows.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t query = h * s.head_size;
      const int64_t key = (s.heads + h / (s.heads / s.kv_heads)) * s.head_size;
      const int64_t value =
          (s.heads + s.kv_heads) * s.head_size + h / (s.heads / s.kv_heads) * s.value_size();
      for (int64_t t = 0; t < s.rows.sequence; ++t) {
        std::vector<double> weights;
        double sum = 0;
        const int64_t first = packed ? t - PackedPosition(t, kBegins) : 0;
        const int64_t from = s.scores.window > 0 ? std::max(first, t + 1 - s.scores.window) : first;
        for (int64_t u = from; u <= t; ++u) {
          double product = 0;
          for (int64_t d = 0; d < s.head_size; ++d)
            product += at(b, t, query + d) * at(b, u, key + d);
          weights.push_back(std::exp(ScoreOf(s, product, h, t - u)));
          sum += weights.back();
        }
        result.log_sum_exp[static_cast<size_t>((b * s.heads + h) * s.rows.sequence + t)] =
            std::log(sum);
        double* out = &result.out[static_cast<size_t>(((b * s.rows.sequence + t) * s.heads + h) *
                                                      s.value_size())];
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
const Expected& ExpectedOf(const AttentionShape& s, bool packed, DType dtype,
                           std::span<const float> qkv, std::span<const float> dout) {
  static std::map<std::tuple<int64_t, int64_t, bool, DType>, Expected> known;
  const auto key = std::tuple{s.rows.sequence, s.heads, packed, dtype};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const auto dout64 = ToDouble(dout);
  const auto loss = [&](std::span<const double> v) {
    return Dot(Reference(s, packed, v).out, dout64);
  };
  const auto qkv64 = ToDouble(qkv);
  return known[key] = {Reference(s, packed, qkv64), NumericGradient(qkv64, loss)};
}

class AttentionTest : public OpTest {
 public:
  void Check(AttentionShape s, bool packed) {
    SCOPED_TRACE(testing::Message() << "T " << s.rows.sequence << " heads " << s.heads << "/"
                                    << s.kv_heads << (packed ? " packed" : ""));
    if (packed) {
      std::vector<int32_t> positions;
      for (int64_t row = 0; row < s.tokens(); ++row) {
        positions.push_back(PackedPosition(row % s.rows.sequence, kBegins));
      }
      s.rows.positions = Ids(positions);
    }
    const Shape qkv_shape = {s.tokens(), s.qkv_size()};
    const Shape out_shape = {s.tokens(), s.out_size()};
    const auto qkv = Values(qkv_shape.numel(), 1, 2.0f);
    const auto dout = Values(out_shape.numel(), 2);

    const Tensor qkv_device = Input(qkv_shape, qkv);
    Tensor out = Output(out_shape);
    Tensor log_sum_exp = Output({s.rows.batch, s.heads, s.rows.sequence}, DType::kF32);
    AttentionForward(s, qkv_device, out, log_sum_exp);
    const auto& [expected, gradient] = ExpectedOf(s, packed, dtype(), qkv, dout);
    ExpectClose(Read(out), expected.out, tolerance().product, "out");
    ExpectClose(Read(log_sum_exp), expected.log_sum_exp, tolerance(DType::kF32).product,
                "log_sum_exp");

    Tensor dqkv = Output(qkv_shape);
    AttentionBackward(s, qkv_device, out, log_sum_exp, Input(out_shape, dout), dqkv);
    ExpectClose(Read(dqkv), gradient, tolerance().chained, "dqkv");
  }
};

TEST_P(AttentionTest, MatchesItsFormulaAndDerivative) {
  for (const AttentionShape& s : Cases()) Check(s, /*packed=*/false);
}

// A query sees the keys of its own document alone.
TEST_P(AttentionTest, OfPackedDocumentsIsThatOfEach) {
  for (const AttentionShape& s : Cases()) Check(s, /*packed=*/true);
}

// Positions that begin once give the bits that no positions give.
TEST(PackedAttention, OfOneDocumentHasTheBitsOfAWholeSequence) {
  const auto device = MakeCpuDevice(2);
  AttentionShape s = {.rows = {2, 131}, .heads = 4, .kv_heads = 2, .head_size = 6};
  const auto values = [&](const Shape& shape, uint32_t seed) {
    Tensor tensor = Tensor::Empty(*device, shape, DType::kF32, MemoryTag::kActivations);
    CopyFromHost(tensor, RandomValues(shape.numel(), seed, 2.0f));
    return tensor;
  };
  const Tensor qkv = values({s.tokens(), s.qkv_size()}, 1);
  const Tensor dout = values({s.tokens(), s.out_size()}, 2);
  std::vector<int32_t> list;
  for (int64_t row = 0; row < s.tokens(); ++row) {
    list.push_back(static_cast<int32_t>(row % s.rows.sequence));
  }
  Tensor positions = Tensor::Empty(*device, {s.tokens()}, DType::kI32, MemoryTag::kActivations);
  CopyFromHost(positions, list);
  std::vector<std::vector<float>> results[2];
  for (const bool packed : {false, true}) {
    if (packed) s.rows.positions = positions;
    Tensor out = values(dout.shape(), 3);
    Tensor log_sum_exp = values({s.rows.batch, s.heads, s.rows.sequence}, 4);
    Tensor dqkv = values(qkv.shape(), 5);
    AttentionForward(s, qkv, out, log_sum_exp);
    AttentionBackward(s, qkv, out, log_sum_exp, dout, dqkv);
    for (const Tensor& each : {out, log_sum_exp, dqkv}) {
      auto& copy = results[packed ? 1 : 0].emplace_back(static_cast<size_t>(each.numel()));
      CopyToHost(each, copy);
    }
  }
  EXPECT_EQ(results[0], results[1]);
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
  AttentionShape s = {.rows = {2, 6}, .heads = 3, .kv_heads = 3, .head_size = 4};
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
  const AttentionShape s = {.rows = {1, 70}, .heads = 1, .kv_heads = 1, .head_size = 4};
  const Shape qkv_shape = {s.tokens(), s.qkv_size()};
  const auto qkv = Values(qkv_shape.numel(), 3, 40.0f);  // scores up to +-3200
  Tensor out = Output({s.tokens(), s.head_size});
  Tensor log_sum_exp = Output({1, 1, s.rows.sequence}, DType::kF32);
  AttentionForward(s, Input(qkv_shape, qkv), out, log_sum_exp);
  for (const float value : Read(out)) ASSERT_LE(std::abs(value), 40.0f);
  for (const float value : Read(log_sum_exp)) ASSERT_TRUE(std::isfinite(value));
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
