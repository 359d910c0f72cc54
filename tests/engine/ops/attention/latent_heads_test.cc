#include "engine/ops/attention/latent_heads.h"

#include <cmath>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

// Turns `x`, the dims of one head that do.
void Turn(const Rotary& rotary, int64_t position, double* x) {
  const int64_t half = rotary.dims / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) *
        std::pow(rotary.theta, -static_cast<double>(i) / static_cast<double>(half));
    double& low = x[rotary.interleaved ? 2 * i : i];
    double& high = x[rotary.interleaved ? 2 * i + 1 : i + half];
    const double a = low;
    low = a * std::cos(angle) - high * std::sin(angle);
    high = high * std::cos(angle) + a * std::sin(angle);
  }
}

// qkv of `values`: queries, then what keys and values share, then what turns of the keys.
std::vector<double> Reference(const AttentionShape& s, const Rotary& rotary,
                              std::span<const double> values) {
  const int64_t fixed = s.head_size - rotary.dims;
  const int64_t joined = fixed + s.value_size();
  const double* query = values.data();
  const double* key_value = query + s.tokens() * s.query_size();
  const double* turning = key_value + s.tokens() * s.heads * joined;
  std::vector<double> qkv;
  for (int64_t token = 0; token < s.tokens(); ++token) {
    const int64_t position = s.rows.view().of(token);
    const auto add_head = [&](const double* head_fixed, const double* head_turning) {
      qkv.insert(qkv.end(), head_fixed, head_fixed + fixed);
      qkv.insert(qkv.end(), head_turning, head_turning + rotary.dims);
      Turn(rotary, position, qkv.data() + qkv.size() - rotary.dims);
    };
    const double* pairs = key_value + token * s.heads * joined;
    for (int64_t h = 0; h < s.heads; ++h) {
      const double* head = query + token * s.query_size() + h * s.head_size;
      add_head(head, head + fixed);
    }
    for (int64_t h = 0; h < s.heads; ++h) {
      add_head(pairs + h * joined, turning + token * rotary.dims);
    }
    for (int64_t h = 0; h < s.heads; ++h) {
      const double* value = pairs + h * joined + fixed;
      qkv.insert(qkv.end(), value, value + s.value_size());
    }
  }
  return qkv;
}

using LatentHeadsTest = OpTest;

TEST_P(LatentHeadsTest, MatchesItsFormulaAndDerivative) {
  const std::vector<AttentionShape> cases = {
      {.rows = {1, 1}, .heads = 1, .kv_heads = 1, .head_size = 3, .value_head_size = 1},
      {.rows = {2, 5}, .heads = 3, .kv_heads = 3, .head_size = 7, .value_head_size = 5},
      {.rows = {1, 6}, .heads = 2, .kv_heads = 2, .head_size = 5, .value_head_size = 8},
      // What does not turn are whole packs.
      {.rows = {1, 2}, .heads = 2, .kv_heads = 2, .head_size = 24, .value_head_size = 8}};
  for (const bool interleaved : {false, true}) {
    for (AttentionShape s : cases) {
      Rotary rotary(10000.0);
      rotary.dims = s.head_size == 7 ? 4 : s.head_size == 24 ? 8 : 2;
      rotary.interleaved = interleaved;
      // The second of two context-parallel ranks has the middle of longer sequences.
      if (s.rows.sequence == 6) s.rows = RowLayout::ZigZag(1, 12, 2, 1);
      const Shape query_shape = {s.tokens(), s.query_size()};
      const Shape key_value_shape = JoinedKeyValueShape(s, rotary.dims);
      const Shape turning_shape = {s.tokens(), rotary.dims};
      const Shape qkv_shape = {s.tokens(), s.qkv_size()};
      const auto values =
          Values(query_shape.numel() + key_value_shape.numel() + turning_shape.numel(), 1);
      const std::span<const float> all = values;
      const auto first = static_cast<size_t>(query_shape.numel());
      const auto second = static_cast<size_t>(key_value_shape.numel());
      Tensor qkv = Output(qkv_shape);
      JoinHeads(s, rotary, Input(query_shape, all.first(first)),
                Input(key_value_shape, all.subspan(first, second)),
                Input(turning_shape, all.subspan(first + second)), qkv);
      const auto values64 = ToDouble(values);
      ExpectClose(Read(qkv), Reference(s, rotary, values64), tolerance().elementwise, "qkv");

      const auto dqkv = Values(qkv_shape.numel(), 2);
      const auto dqkv64 = ToDouble(dqkv);
      Tensor dquery = Output(query_shape);
      Tensor dkey_value = Output(key_value_shape);
      Tensor dturning = Output(turning_shape);
      JoinHeadsBackward(s, rotary, Input(qkv_shape, dqkv), dquery, dkey_value, dturning);
      const auto expected = NumericGradient(values64, [&](std::span<const double> v) {
        return Dot(Reference(s, rotary, v), dqkv64);
      });
      std::vector<float> gradient = Read(dquery);
      for (const Tensor& more : {dkey_value, dturning}) {
        const std::vector<float> part = Read(more);
        gradient.insert(gradient.end(), part.begin(), part.end());
      }
      ExpectClose(gradient, expected, tolerance().chained, "gradients");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LatentHeadsTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
