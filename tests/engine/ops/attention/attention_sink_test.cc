#include "engine/ops/attention/attention_sink.h"

#include <cmath>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

// Attention over qkv with one more score per row, the head's sink; `values` are qkv, then sinks.
std::vector<double> Reference(const AttentionShape& s, std::span<const double> values) {
  std::vector<double> out(static_cast<size_t>(s.tokens() * s.out_size()));
  const auto at = [&](int64_t b, int64_t t, int64_t column) {
    return values[static_cast<size_t>((b * s.rows.sequence + t) * s.qkv_size() + column)];
  };
  for (int64_t b = 0; b < s.rows.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t kv_head = h / (s.heads / s.kv_heads);
      const int64_t key = (s.heads + kv_head) * s.head_size;
      const int64_t value = (s.heads + s.kv_heads) * s.head_size + kv_head * s.value_size();
      for (int64_t t = 0; t < s.rows.sequence; ++t) {
        double sum = std::exp(values[static_cast<size_t>(s.tokens() * s.qkv_size() + h)]);
        std::vector<double> weighted(static_cast<size_t>(s.value_size()));
        const int64_t from =
            s.scores.window > 0 ? std::max<int64_t>(0, t + 1 - s.scores.window) : 0;
        for (int64_t u = from; u <= t; ++u) {
          double score = 0;
          for (int64_t d = 0; d < s.head_size; ++d) {
            score += at(b, t, h * s.head_size + d) * at(b, u, key + d);
          }
          const double weight = std::exp(score / std::sqrt(static_cast<double>(s.head_size)));
          sum += weight;
          for (int64_t d = 0; d < s.value_size(); ++d) {
            weighted[static_cast<size_t>(d)] += weight * at(b, u, value + d);
          }
        }
        for (int64_t d = 0; d < s.value_size(); ++d) {
          out[static_cast<size_t>((b * s.rows.sequence + t) * s.out_size() + h * s.value_size() +
                                  d)] = weighted[static_cast<size_t>(d)] / sum;
        }
      }
    }
  }
  return out;
}

using AttentionSinkTest = OpTest;

TEST_P(AttentionSinkTest, IsOneMoreScoreWithoutAValue) {
  const std::vector<AttentionShape> cases = {
      {.rows = {1, 1}, .heads = 1, .kv_heads = 1, .head_size = 2},
      {.rows = {2, 7}, .heads = 4, .kv_heads = 2, .head_size = 3},
      {.rows = {1, 9},
       .heads = 2,
       .kv_heads = 2,
       .head_size = 3,
       .scores = {.window = 4},
       .value_head_size = 2}};
  for (const AttentionShape& s : cases) {
    const Shape qkv_shape = {s.tokens(), s.qkv_size()};
    const Shape out_shape = {s.tokens(), s.out_size()};
    const auto values = Values(qkv_shape.numel() + s.heads, 1, 2.0f);
    const auto dout = Values(out_shape.numel(), 2);
    const std::span<const float> all = values;
    const Tensor qkv = Input(qkv_shape, all.first(static_cast<size_t>(qkv_shape.numel())));
    const Tensor sinks = Input({s.heads}, all.last(static_cast<size_t>(s.heads)));
    const Tensor dout_device = Input(out_shape, dout);
    Tensor out = Output(out_shape);
    Tensor log_sum_exp = Output({s.rows.batch, s.heads, s.rows.sequence}, DType::kF32);
    AttentionForward(s, qkv, out, log_sum_exp);
    AttentionSink(s, sinks, out, log_sum_exp);
    const auto values64 = ToDouble(values);
    const auto dout64 = ToDouble(dout);
    ExpectClose(Read(out), Reference(s, values64), tolerance().chained, "out");

    const auto gradient = NumericGradient(
        values64, [&](std::span<const double> v) { return Dot(Reference(s, v), dout64); });
    const std::span<const double> expected = gradient;
    Tensor dqkv = Output(qkv_shape);
    AttentionBackward(s, qkv, out, log_sum_exp, dout_device, dqkv);
    ExpectClose(Read(dqkv), expected.first(static_cast<size_t>(qkv_shape.numel())),
                tolerance().chained, "dqkv");
    Tensor dsinks = Output({s.heads}, gradient_dtype());
    AttentionSinkBackward(s, sinks, out, log_sum_exp, dout_device, dsinks, /*accumulate=*/false);
    const auto expected_dsinks = expected.last(static_cast<size_t>(s.heads));
    ExpectClose(Read(dsinks), expected_dsinks, tolerance().chained, "dsinks");
    AttentionSinkBackward(s, sinks, out, log_sum_exp, dout_device, dsinks, /*accumulate=*/true);
    std::vector<double> twice(expected_dsinks.begin(), expected_dsinks.end());
    for (double& value : twice) value *= 2;
    ExpectClose(Read(dsinks), twice, tolerance().chained, "dsinks, added to");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionSinkTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
