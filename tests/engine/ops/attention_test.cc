#include "engine/ops/attention.h"

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
  };
  return cases;
}

struct Result {
  std::vector<double> out;
  std::vector<double> log_sum_exp;
};

Result Reference(const AttentionShape& s, std::span<const double> qkv) {
  Result result;
  result.out.resize(static_cast<size_t>(s.tokens() * s.heads * s.head_size));
  result.log_sum_exp.resize(static_cast<size_t>(s.batch * s.heads * s.sequence));
  const auto at = [&](int64_t b, int64_t t, int64_t column) {
    return qkv[static_cast<size_t>((b * s.sequence + t) * s.qkv_size() + column)];
  };
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t query = h * s.head_size;
      const int64_t key = (s.heads + h / (s.heads / s.kv_heads)) * s.head_size;
      const int64_t value = key + s.kv_heads * s.head_size;
      for (int64_t t = 0; t < s.sequence; ++t) {
        std::vector<double> weights;
        double sum = 0;
        for (int64_t u = 0; u <= t; ++u) {
          double score = 0;
          for (int64_t d = 0; d < s.head_size; ++d)
            score += at(b, t, query + d) * at(b, u, key + d);
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s.head_size))));
          sum += weights.back();
        }
        result.log_sum_exp[static_cast<size_t>((b * s.heads + h) * s.sequence + t)] = std::log(sum);
        double* out =
            &result.out[static_cast<size_t>(((b * s.sequence + t) * s.heads + h) * s.head_size)];
        for (int64_t u = 0; u <= t; ++u) {
          for (int64_t d = 0; d < s.head_size; ++d) {
            out[d] += weights[static_cast<size_t>(u)] / sum * at(b, u, value + d);
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
    const Shape out_shape = {s.tokens(), s.heads * s.head_size};
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
