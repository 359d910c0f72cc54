#include <cmath>

#include "engine/ops/attention.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

std::vector<double> Reference(const AttentionShape& s, const Positions& positions, double theta,
                              std::vector<double> qkv) {
  for (int64_t token = 0; token < s.tokens(); ++token) {
    for (int64_t head = 0; head < s.heads + s.kv_heads; ++head) {
      double* x = &qkv[static_cast<size_t>(token * s.qkv_size() + head * s.head_size)];
      const int64_t half = s.head_size / 2;
      for (int64_t i = 0; i < half; ++i) {
        const double frequency =
            std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(s.head_size));
        const double angle = static_cast<double>(positions.of(token % s.sequence)) * frequency;
        const double low = x[i];
        const double high = x[i + half];
        x[i] = low * std::cos(angle) - high * std::sin(angle);
        x[i + half] = high * std::cos(angle) + low * std::sin(angle);
      }
    }
  }
  return qkv;
}

using RopeTest = OpTest;

TEST_P(RopeTest, RotatesQueriesAndKeysAndBack) {
  const std::vector<AttentionShape> cases = {
      {.batch = 1, .sequence = 1, .heads = 1, .kv_heads = 1, .head_size = 2},
      {.batch = 3, .sequence = 17, .heads = 4, .kv_heads = 2, .head_size = 6},
      {.batch = 2, .sequence = 65, .heads = 2, .kv_heads = 1, .head_size = 64},
      {.batch = 1, .sequence = 3000, .heads = 1, .kv_heads = 1, .head_size = 34}};
  for (const double theta : {10000.0, 500000.0}) {
    for (const AttentionShape& s : cases) {
      const Shape shape = {s.tokens(), s.qkv_size()};
      if (Skips(shape.numel())) continue;
      const auto values = Values(shape.numel(), 1);
      Tensor qkv = Input(shape, values);
      Rope(s, s.sequence, theta, false, qkv);
      ExpectClose(Read(qkv), Reference(s, s.sequence, theta, ToDouble(values)),
                  tolerance().elementwise, "rotated");
      Rope(s, s.sequence, theta, true, qkv);
      ExpectClose(Read(qkv), ToDouble(values), tolerance().chained, "rotated back");
    }
  }
}

TEST_P(RopeTest, TurnsSharesOfASequenceByTheirPositions) {
  const AttentionShape s = {.batch = 2, .sequence = 34, .heads = 2, .kv_heads = 1, .head_size = 6};
  const Shape shape = {s.tokens(), s.qkv_size()};
  const auto values = Values(shape.numel(), 1);
  for (const int64_t rank : {0, 1, 2}) {
    const Positions positions = Positions::ZigZag(3 * s.sequence, 3, rank);
    Tensor qkv = Input(shape, values);
    Rope(s, positions, 10000.0, false, qkv);
    ExpectClose(Read(qkv), Reference(s, positions, 10000.0, ToDouble(values)),
                tolerance().elementwise, "rotated");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RopeTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
