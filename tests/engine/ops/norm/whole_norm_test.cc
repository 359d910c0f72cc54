#include "engine/ops/norm/whole_norm.h"

#include <cmath>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr double kEpsilon = 1e-5;

// qkv with all queries of a token normed together, and all its keys; `weights` are those of
// queries, then of keys.
std::vector<double> Reference(const AttentionShape& s, bool plus_one, std::vector<double> qkv,
                              std::span<const double> weights) {
  const int64_t queries = s.heads * s.head_size;
  const int64_t keys = s.kv_heads * s.head_size;
  for (int64_t token = 0; token < s.tokens(); ++token) {
    for (const bool key : {false, true}) {
      double* x = &qkv[static_cast<size_t>(token * s.qkv_size() + (key ? queries : 0))];
      const double* weight = &weights[static_cast<size_t>(key ? queries : 0)];
      const int64_t size = key ? keys : queries;
      double squares = 0;
      for (int64_t i = 0; i < size; ++i) squares += x[i] * x[i];
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(size) + kEpsilon);
      for (int64_t i = 0; i < size; ++i) x[i] *= rstd * (weight[i] + (plus_one ? 1 : 0));
    }
  }
  return qkv;
}

using WholeNormTest = OpTest;

TEST_P(WholeNormTest, MatchesItsFormulaAndDerivative) {
  const std::vector<AttentionShape> cases = {
      {.rows = {1, 1}, .heads = 1, .kv_heads = 1, .head_size = 2},
      {.rows = {2, 5}, .heads = 4, .kv_heads = 2, .head_size = 3},
      {.rows = {1, 3}, .heads = 6, .kv_heads = 1, .head_size = 70}};
  for (const bool plus_one : {false, true}) {
    for (const AttentionShape& s : cases) {
      const Shape matrix = {s.tokens(), s.qkv_size()};
      const int64_t queries = s.heads * s.head_size;
      const int64_t keys = s.kv_heads * s.head_size;
      const auto qkv = Values(matrix.numel(), 1, 2.0f);
      const auto weights = Values(queries + keys, 2);
      const auto dout = Values(matrix.numel(), 3);
      const std::span<const float> both = weights;
      const Tensor qkv_device = Input(matrix, qkv);
      const WholeNorms norms = {
          .query_weight = Input({queries}, both.first(static_cast<size_t>(queries))),
          .key_weight = Input({keys}, both.last(static_cast<size_t>(keys))),
          .query_count = queries,
          .key_count = keys,
          .options = {kEpsilon, plus_one}};
      Tensor out = Output(matrix);
      Tensor squares = Output({s.tokens(), 2}, DType::kF32);
      WholeNormSquares(s, qkv_device, squares);
      WholeNormForward(s, qkv_device, norms, squares, out);
      const auto qkv64 = ToDouble(qkv);
      const auto weights64 = ToDouble(weights);
      const auto dout64 = ToDouble(dout);
      ExpectClose(Read(out), Reference(s, plus_one, qkv64, weights64), tolerance().reduction,
                  "out");

      Tensor dqkv = Input(matrix, dout);
      Tensor slopes = Output({s.tokens(), 2}, DType::kF32);
      Tensor dweights = Output({queries + keys}, gradient_dtype());
      WholeNormSlopes(s, qkv_device, norms, squares, dqkv, slopes, dweights);
      WholeNormBackward(s, qkv_device, norms, squares, slopes, dqkv);
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

// Two ranks with half of the heads each: with their sums added up they make their columns of what
// one rank with all heads makes.
TEST_P(WholeNormTest, OfPartsIsThatOfTheWhole) {
  const AttentionShape whole = {.rows = {1, 4}, .heads = 4, .kv_heads = 2, .head_size = 8};
  AttentionShape half = whole;
  half.heads = 2;
  half.kv_heads = 1;
  const auto qkv = Values(whole.tokens() * whole.qkv_size(), 1, 2.0f);
  const auto query_weight = Values(whole.heads * whole.head_size, 2);
  const auto key_weight = Values(whole.kv_heads * whole.head_size, 3);
  // The columns of half `part` of a row of the whole: its queries, its key head, its value head.
  const auto half_of = [&](const std::vector<float>& rows, int64_t part) {
    std::vector<float> result;
    const int64_t d = whole.head_size;
    for (int64_t token = 0; token < whole.tokens(); ++token) {
      const float* row = &rows[static_cast<size_t>(token * whole.qkv_size())];
      result.insert(result.end(), row + part * 2 * d, row + (part + 1) * 2 * d);
      for (const int64_t head : {4 + part, 6 + part}) {
        result.insert(result.end(), row + head * d, row + (head + 1) * d);
      }
    }
    return result;
  };
  const WholeNorms norms = {.query_weight = Input({32}, query_weight),
                            .key_weight = Input({16}, key_weight),
                            .query_count = 32,
                            .key_count = 16,
                            .options = {kEpsilon}};
  Tensor squares = Output({whole.tokens(), 2}, DType::kF32);
  const Tensor qkv_device = Input({whole.tokens(), whole.qkv_size()}, qkv);
  WholeNormSquares(whole, qkv_device, squares);
  Tensor out = Output({whole.tokens(), whole.qkv_size()});
  WholeNormForward(whole, qkv_device, norms, squares, out);

  const Shape half_matrix = {half.tokens(), half.qkv_size()};
  std::vector<Tensor> halves;
  std::vector<float> sums(static_cast<size_t>(2 * whole.tokens()));
  for (const int64_t part : {0, 1}) {
    halves.push_back(Input(half_matrix, half_of(qkv, part)));
    Tensor its = Output({half.tokens(), 2}, DType::kF32);
    WholeNormSquares(half, halves.back(), its);
    const std::vector<float> values = Read(its);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  for (const int64_t part : {0, 1}) {
    const std::span<const float> queries = query_weight;
    const std::span<const float> keys = key_weight;
    WholeNorms its = norms;
    its.query_weight = Input({16}, queries.subspan(static_cast<size_t>(16 * part), 16));
    its.key_weight = Input({8}, keys.subspan(static_cast<size_t>(8 * part), 8));
    Tensor its_squares =
        Tensor::Empty(device(), {half.tokens(), 2}, DType::kF32, MemoryTag::kWorkspace);
    CopyFromHost(its_squares, sums);
    Tensor its_out = Output(half_matrix);
    WholeNormForward(half, halves[static_cast<size_t>(part)], its, its_squares, its_out);
    ExpectClose(Read(its_out), ToDouble(half_of(Read(out), part)), tolerance().reduction, "half");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, WholeNormTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
