#include "engine/ops/norm/head_norm.h"

#include <cmath>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr double kEpsilon = 1e-5;

// qkv with its query and key heads normed; `weights` are those of queries, then of keys.
std::vector<double> Reference(const AttentionShape& s, bool plus_one, std::vector<double> qkv,
                              std::span<const double> weights) {
  for (int64_t token = 0; token < s.tokens(); ++token) {
    for (int64_t head = 0; head < s.heads + s.kv_heads; ++head) {
      double* x = &qkv[static_cast<size_t>(token * s.qkv_size() + head * s.head_size)];
      const double* weight = &weights[static_cast<size_t>(head < s.heads ? 0 : s.head_size)];
      double squares = 0;
      for (int64_t i = 0; i < s.head_size; ++i) squares += x[i] * x[i];
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(s.head_size) + kEpsilon);
      for (int64_t i = 0; i < s.head_size; ++i) x[i] *= rstd * (weight[i] + (plus_one ? 1 : 0));
    }
  }
  return qkv;
}

using HeadNormTest = OpTest;

TEST_P(HeadNormTest, MatchesItsFormulaAndDerivative) {
  const std::vector<AttentionShape> cases = {
      {.rows = {1, 1}, .heads = 1, .kv_heads = 1, .head_size = 2},
      {.rows = {2, 5}, .heads = 4, .kv_heads = 2, .head_size = 3},
      {.rows = {1, 3}, .heads = 3, .kv_heads = 1, .head_size = 70}};
  for (const bool plus_one : {false, true}) {
    for (const AttentionShape& s : cases) {
      const Shape matrix = {s.tokens(), s.qkv_size()};
      const Shape vector = {s.head_size};
      const auto qkv = Values(matrix.numel(), 1, 2.0f);
      const auto weights = Values(2 * s.head_size, 2);
      const auto dout = Values(matrix.numel(), 3);
      const std::span<const float> both = weights;
      const Tensor qkv_device = Input(matrix, qkv);
      const auto d = static_cast<size_t>(s.head_size);
      const Tensor query_weight = Input(vector, both.first(d));
      const Tensor key_weight = Input(vector, both.last(d));
      Tensor out = Output(matrix);
      Tensor rstd = Output({s.tokens(), s.heads + s.kv_heads}, DType::kF32);
      HeadNormForward(s, qkv_device, query_weight, key_weight, {kEpsilon, plus_one}, out, rstd);
      const auto qkv64 = ToDouble(qkv);
      const auto weights64 = ToDouble(weights);
      const auto dout64 = ToDouble(dout);
      ExpectClose(Read(out), Reference(s, plus_one, qkv64, weights64), tolerance().reduction,
                  "out");

      Tensor dqkv = Input(matrix, dout);
      Tensor dweights = Output({2, s.head_size}, gradient_dtype());
      HeadNormBackward(s, qkv_device, query_weight, key_weight, rstd, plus_one, dqkv, dweights);
      const auto expected_dqkv = NumericGradient(qkv64, [&](std::span<const double> v) {
        return Dot(Reference(s, plus_one, {v.begin(), v.end()}, weights64), dout64);
      });
      ExpectClose(Read(dqkv), expected_dqkv, tolerance().reduction, "dqkv");
      const auto expected_dweights = NumericGradient(weights64, [&](std::span<const double> v) {
        return Dot(Reference(s, plus_one, qkv64, v), dout64);
      });
      ExpectClose(Read(dweights), expected_dweights, tolerance(gradient_dtype()).reduction,
                  "dweights");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, HeadNormTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
