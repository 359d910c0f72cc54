#include "engine/ops/attention/attention_block.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "tests/engine/ops/op_inputs.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

/// A block of the keys in one of several tensors.
struct Part {
  size_t source = 0;
  AttentionBlock block;
  int64_t ahead = 0;  // of its first query, before its first key
};

struct Case {
  const char* name;
  AttentionShape shape;
  size_t sources;
  std::vector<Part> parts;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"one key",
       {.rows = {2, 1}, .heads = 1, .kv_heads = 1, .head_size = 3},
       1,
       {{0, {.size = 1}, 1}}},
      {"a whole sequence",
       {.rows = {2, 9}, .heads = 4, .kv_heads = 2, .head_size = 4},
       1,
       {{0, {.size = 9}}}},
      {"halves of two",
       {.rows = {3, 6}, .heads = 4, .kv_heads = 2, .head_size = 5},
       2,
       {{0, {.size = 6}},
        {1, {.query = 3, .key = 0, .size = 3}, 3},
        {1, {.query = 3, .key = 3, .size = 3}, 9}}},
      {"queries that see nothing",
       {.rows = {2, 5}, .heads = 2, .kv_heads = 1, .head_size = 2},
       1,
       {{0, {.query = 1, .key = 2, .size = 3}, 2}}},
      {"past the tiles",
       {.rows = {1, 140}, .heads = 1, .kv_heads = 1, .head_size = 2},
       2,
       {{0, {.query = 70, .key = 0, .size = 70}, 70}, {1, {.query = 5, .key = 60, .size = 70}}}},
      {"short values",
       {.rows = {2, 6}, .heads = 4, .kv_heads = 2, .head_size = 5, .value_head_size = 3},
       2,
       {{0, {.size = 6}}, {1, {.query = 3, .key = 3, .size = 3}, 3}}},
      {"part of the keys",
       {.rows = {2, 9}, .heads = 2, .kv_heads = 1, .head_size = 3},
       1,
       {{0, {.query = 1, .key = 2, .size = 7}, 3}}},
      {"a window",
       {.rows = {2, 8}, .heads = 4, .kv_heads = 2, .head_size = 3, .scores = {.window = 3}},
       2,
       {{0, {.query = 4, .key = 0, .size = 4}, 20},  // hidden
        {0, {.size = 4}},
        {0, {.query = 4, .key = 4, .size = 4}},
        {1, {.query = 4, .key = 0, .size = 4}, 4}}},  // hidden from some
      {"a window past the tiles",
       {.rows = {1, 80}, .heads = 1, .kv_heads = 1, .head_size = 1, .scores = {.window = 30}},
       2,
       {{0, {.size = 80}}, {1, {.query = 0, .key = 0, .size = 80}, 25}}},
      {"ALiBi",
       {.rows = {2, 8},
        .heads = 4,
        .kv_heads = 2,
        .head_size = 3,
        .scores = {.alibi_heads = 6, .alibi_first = 1}},
       2,
       {{0, {.size = 4}}, {1, {.query = 4, .key = 0, .size = 4}, 12}}},
  };
  return cases;
}

struct Result {
  std::vector<double> out;          // [N, H*D]
  std::vector<double> log_sum_exp;  // [B, H, T]
};

/// The formula over all parts at once: `values` are qkv and then each source's keys and values.
Result Reference(const Case& c, std::span<const double> values) {
  const AttentionShape& s = c.shape;
  const int64_t kv_width = s.kv_size();
  Result result;
  result.out.resize(static_cast<size_t>(s.tokens() * s.out_size()));
  result.log_sum_exp.resize(static_cast<size_t>(s.rows.batch * s.heads * s.rows.sequence),
                            -std::numeric_limits<double>::infinity());
  for (int64_t b = 0; b < s.rows.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t t = 0; t < s.rows.sequence; ++t) {
        const double* query = &values[static_cast<size_t>((b * s.rows.sequence + t) * s.qkv_size() +
                                                          h * s.head_size)];
        double sum = 0;
        std::vector<double> weighted(static_cast<size_t>(s.value_size()));
        for (const Part& part : c.parts) {
          const int64_t i = t - part.block.query;
          if (i < 0 || i >= part.block.size) continue;
          for (int64_t j = 0; j < part.block.size; ++j) {
            const int64_t distance = i + part.ahead - j;
            if (distance < 0 || (s.scores.window > 0 && distance >= s.scores.window)) continue;
            const int64_t token = b * s.rows.sequence + part.block.key + j;
            const int64_t first = s.tokens() * s.qkv_size() +
                                  static_cast<int64_t>(part.source) * s.tokens() * kv_width;
            const int64_t kv_head = h / (s.heads / s.kv_heads);
            const double* kv = &values[static_cast<size_t>(first + token * kv_width)];
            const double* key = kv + kv_head * s.head_size;
            const double* value = kv + s.kv_heads * s.head_size + kv_head * s.value_size();
            double score = 0;
            for (int64_t d = 0; d < s.head_size; ++d) score += query[d] * key[d];
            score /= std::sqrt(static_cast<double>(s.head_size));
            if (s.scores.alibi_heads > 0) {
              score -= static_cast<double>(distance) *
                       AlibiSlope(s.scores.alibi_first + h, s.scores.alibi_heads);
            }
            const double weight = std::exp(score);
            sum += weight;
            for (int64_t d = 0; d < s.value_size(); ++d) {
              weighted[static_cast<size_t>(d)] += weight * value[d];
            }
          }
        }
        if (sum == 0) continue;
        result.log_sum_exp[static_cast<size_t>((b * s.heads + h) * s.rows.sequence + t)] =
            std::log(sum);
        for (int64_t d = 0; d < s.value_size(); ++d) {
          result.out[static_cast<size_t>(
              ((b * s.rows.sequence + t) * s.heads + h) * s.value_size() + d)] =
              weighted[static_cast<size_t>(d)] / sum;
        }
      }
    }
  }
  return result;
}

struct Expected {
  Result forward;
  std::vector<double> gradient;  // of the values
};

// By case and storage type: the differences take longer than the op.
const Expected& ExpectedOf(const Case& c, DType dtype, std::span<const float> values,
                           std::span<const float> dout) {
  static std::map<std::pair<std::string, DType>, Expected> known;
  const auto [entry, is_new] = known.try_emplace({c.name, dtype});
  if (is_new) {
    const auto dout64 = ToDouble(dout);
    const auto loss = [&](std::span<const double> v) { return Dot(Reference(c, v).out, dout64); };
    const auto values64 = ToDouble(values);
    entry->second = {Reference(c, values64), NumericGradient(values64, loss)};
  }
  return entry->second;
}

/// What an attention begins with.
std::vector<float> Repeated(const Shape& shape, float value) {
  return std::vector<float>(static_cast<size_t>(shape.numel()), value);
}

using AttentionBlockTest = OpTest;

TEST_P(AttentionBlockTest, BlocksAddUpToTheAttentionOverAllOfThem) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const AttentionShape& s = c.shape;
    const Shape qkv_shape = {s.tokens(), s.qkv_size()};
    const Shape kv_shape = KeyValueShape(s);
    const Shape out_shape = {s.tokens(), s.out_size()};
    const Shape sums_shape = {s.rows.batch, s.heads, s.rows.sequence};
    const auto sources = static_cast<int64_t>(c.sources);
    const auto values = Values(qkv_shape.numel() + sources * kv_shape.numel(), 1, 2.0f);
    const auto dout = Values(out_shape.numel(), 2);
    const auto& [expected, gradient] = ExpectedOf(c, dtype(), values, dout);

    const std::span<const float> all(values);
    const auto qkv_size = static_cast<size_t>(qkv_shape.numel());
    const auto kv_size = static_cast<size_t>(kv_shape.numel());
    const Tensor qkv = Input(qkv_shape, all.first(qkv_size));
    std::vector<Tensor> kv;
    std::vector<Tensor> dkv;
    const auto dkv_before = Values(kv_shape.numel(), 3, 0.5f);
    for (size_t i = 0; i < c.sources; ++i) {
      kv.push_back(Input(kv_shape, all.subspan(qkv_size + i * kv_size, kv_size)));
      dkv.push_back(Input(kv_shape, dkv_before));
    }
    Tensor sum = Input(out_shape, Repeated(out_shape, 0.0f), DType::kF32);
    Tensor log_sum_exp = Input(
        sums_shape, Repeated(sums_shape, -std::numeric_limits<float>::infinity()), DType::kF32);
    for (const Part& part : c.parts) {
      AttentionBlockForward(s, KeysAhead(s.rows, part.block, part.ahead), part.block, qkv,
                            kv[part.source], sum, log_sum_exp);
    }
    const auto out = Read(sum);
    ExpectClose(out, expected.out, tolerance(DType::kF32).product, "out");
    const auto sums = Read(log_sum_exp);
    for (size_t i = 0; i < sums.size(); ++i) {
      if (std::isinf(expected.log_sum_exp[i])) {
        EXPECT_EQ(sums[i], -std::numeric_limits<float>::infinity()) << i;
      } else {
        EXPECT_NEAR(sums[i], expected.log_sum_exp[i], 2e-5) << i;
      }
    }

    const Shape query_shape = {s.tokens(), s.query_size()};
    const auto dquery_before = RandomValues(query_shape.numel(), 4);
    Tensor dquery = Input(query_shape, dquery_before, DType::kF32);
    const Tensor rounded = Input(out_shape, Rounded(dtype(), out));
    const Tensor dout_device = Input(out_shape, dout);
    for (const Part& part : c.parts) {
      AttentionBlockBackward(s, KeysAhead(s.rows, part.block, part.ahead), part.block, qkv,
                             kv[part.source], rounded, log_sum_exp, dout_device, dquery,
                             dkv[part.source]);
    }
    std::vector<double> expected_dquery;
    for (size_t i = 0; i < dquery_before.size(); ++i) {
      const auto columns = static_cast<size_t>(query_shape[1]);
      const size_t at = i / columns * static_cast<size_t>(s.qkv_size()) + i % columns;
      expected_dquery.push_back(dquery_before[i] + gradient[at]);
    }
    ExpectClose(Read(dquery), expected_dquery, tolerance().chained, "dquery");
    for (size_t source = 0; source < c.sources; ++source) {
      std::vector<double> expected_dkv;
      for (size_t i = 0; i < kv_size; ++i) {
        expected_dkv.push_back(dkv_before[i] + gradient[qkv_size + source * kv_size + i]);
      }
      ExpectClose(Read(dkv[source]), expected_dkv, tolerance().chained, "dkv");
    }
  }
}

// Parts whose scores differ by thousands: one of them is all there is.
TEST_P(AttentionBlockTest, SurvivesScoresOfAnySize) {
  const AttentionShape s = {.rows = {1, 70}, .heads = 1, .kv_heads = 1, .head_size = 4};
  const Shape qkv_shape = {s.tokens(), s.qkv_size()};
  const Shape kv_shape = KeyValueShape(s);
  const Shape sums_shape = {1, 1, s.rows.sequence};
  const Tensor qkv = Input(qkv_shape, Values(qkv_shape.numel(), 3, 40.0f));
  Tensor out =
      Input({s.tokens(), s.head_size}, Repeated({s.tokens(), s.head_size}, 0.0f), DType::kF32);
  Tensor log_sum_exp =
      Input(sums_shape, Repeated(sums_shape, -std::numeric_limits<float>::infinity()), DType::kF32);
  for (const uint32_t seed : {4u, 5u, 6u}) {
    const Tensor kv = Input(kv_shape, Values(kv_shape.numel(), seed, 40.0f));
    const AttentionBlock block = {.size = s.rows.sequence};
    AttentionBlockForward(s, KeysAhead(s.rows, block, s.rows.sequence), block, qkv, kv, out,
                          log_sum_exp);
  }
  for (const float value : Read(out)) ASSERT_LE(std::abs(value), 40.0f);
  for (const float value : Read(log_sum_exp)) ASSERT_TRUE(std::isfinite(value));
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionBlockTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
