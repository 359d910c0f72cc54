#include <cmath>

#include "engine/ops/attention/attention.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

std::vector<double> Reference(const AttentionShape& s, const Rotary& rotary,
                              std::vector<double> qkv) {
  const int64_t half = (rotary.dims > 0 ? rotary.dims : s.head_size) / 2;
  const int64_t step = rotary.interleaved ? 2 : 1;
  const int64_t reach = rotary.interleaved ? 1 : half;
  for (int64_t token = 0; token < s.tokens(); ++token) {
    for (int64_t head = 0; head < s.heads + s.kv_heads; ++head) {
      double* x = &qkv[static_cast<size_t>(token * s.qkv_size() + head * s.head_size)];
      for (int64_t i = 0; i < half; ++i) {
        const double frequency =
            std::pow(rotary.theta, -static_cast<double>(i) / static_cast<double>(half));
        const double angle = static_cast<double>(s.rows.view().of(token)) * frequency;
        const double low = x[step * i];
        const double high = x[step * i + reach];
        x[step * i] = low * std::cos(angle) - high * std::sin(angle);
        x[step * i + reach] = high * std::cos(angle) + low * std::sin(angle);
      }
    }
  }
  return qkv;
}

using RopeTest = OpTest;

TEST_P(RopeTest, RotatesQueriesAndKeysAndBack) {
  const std::vector<AttentionShape> cases = {
      {.rows = {1, 1}, .heads = 1, .kv_heads = 1, .head_size = 2},
      {.rows = {3, 17}, .heads = 4, .kv_heads = 2, .head_size = 6},
      {.rows = {2, 65}, .heads = 2, .kv_heads = 1, .head_size = 64},
      {.rows = {1, 3000}, .heads = 1, .kv_heads = 1, .head_size = 34}};
  for (const double theta : {10000.0, 500000.0}) {
    for (const AttentionShape& s : cases) {
      const Shape shape = {s.tokens(), s.qkv_size()};
      if (Skips(shape.numel())) continue;
      const auto values = Values(shape.numel(), 1);
      Tensor qkv = Input(shape, values);
      Rope(s, theta, false, qkv);
      ExpectClose(Read(qkv), Reference(s, theta, ToDouble(values)), tolerance().elementwise,
                  "rotated");
      Rope(s, theta, true, qkv);
      ExpectClose(Read(qkv), ToDouble(values), tolerance().chained, "rotated back");
    }
  }
}

TEST_P(RopeTest, TurnsPartOfAHeadInEitherOrder) {
  struct Case {
    int64_t head_size, dims;
    bool interleaved;
  };
  for (const auto& [head_size, dims, interleaved] :
       {Case{6, 2, false}, Case{64, 16, false}, Case{80, 32, false}, Case{6, 0, true},
        Case{10, 4, true}, Case{64, 64, true}}) {
    const AttentionShape s = {.rows = {2, 17}, .heads = 4, .kv_heads = 2, .head_size = head_size};
    Rotary rotary(10000.0);
    rotary.dims = dims;
    rotary.interleaved = interleaved;
    const Shape shape = {s.tokens(), s.qkv_size()};
    const auto values = Values(shape.numel(), 1);
    Tensor qkv = Input(shape, values);
    Rope(s, rotary, false, qkv);
    ExpectClose(Read(qkv), Reference(s, rotary, ToDouble(values)), tolerance().elementwise,
                "rotated");
    Rope(s, rotary, true, qkv);
    ExpectClose(Read(qkv), ToDouble(values), tolerance().chained, "rotated back");
  }
}

// With a factor on cos and sin, the backward pass is the transpose, not the inverse.
TEST_P(RopeTest, BackwardOfAScaledTurnIsItsTranspose) {
  const AttentionShape s = {.rows = {1, 3}, .heads = 1, .kv_heads = 1, .head_size = 4};
  Rotary rotary(100.0);
  rotary.scaling = {
      .kind = RopeScalingKind::kYarn, .factor = 4, .original_length = 16, .attention_factor = 1.5};
  const Shape shape = {s.tokens(), s.qkv_size()};
  const auto x = Values(shape.numel(), 1);
  const auto dy = Values(shape.numel(), 2);
  Tensor y = Input(shape, x);
  Rope(s, rotary, false, y);
  Tensor dx = Input(shape, dy);
  Rope(s, rotary, true, dx);
  const double forward = Dot(ToDouble(Read(y)), ToDouble(dy));
  EXPECT_NEAR(Dot(ToDouble(x), ToDouble(Read(dx))), forward, 20 * tolerance().chained);
}

TEST_P(RopeTest, TurnsSharesOfASequenceByTheirPositions) {
  AttentionShape s = {.rows = {2, 34}, .heads = 2, .kv_heads = 1, .head_size = 6};
  const Shape shape = {s.tokens(), s.qkv_size()};
  const auto values = Values(shape.numel(), 1);
  for (const int64_t rank : {0, 1, 2}) {
    s.rows = RowLayout::ZigZag(2, 3 * 34, 3, rank);
    Tensor qkv = Input(shape, values);
    Rope(s, 10000.0, false, qkv);
    ExpectClose(Read(qkv), Reference(s, 10000.0, ToDouble(values)), tolerance().elementwise,
                "rotated");
  }
}

// From the checkpoints' configurations, worked out by Transformers' formulas in double.
TEST(RotaryFrequencies, Llama3) {
  Rotary rotary(500000.0);
  rotary.scaling = {.kind = RopeScalingKind::kLlama3, .factor = 8, .original_length = 8192};
  const auto w = FrequenciesOf(rotary, 128, false).per_position;
  EXPECT_DOUBLE_EQ(w[28], 0.003211445994752591);
  EXPECT_DOUBLE_EQ(w[29], 0.002166570763503359);
  EXPECT_DOUBLE_EQ(w[30], 0.0013718935677611381);
  EXPECT_DOUBLE_EQ(w[34], 0.0001785078127679964);
  EXPECT_DOUBLE_EQ(w[35], 9.556212353964683e-05);
  EXPECT_DOUBLE_EQ(w[63], 3.068925988914511e-07);
}

TEST(RotaryFrequencies, YarnOfDeepSeekV3) {
  Rotary rotary(10000.0);
  rotary.scaling = {
      .kind = RopeScalingKind::kYarn, .factor = 40, .original_length = 4096, .attention_factor = 1};
  const RotaryFrequencies frequencies = FrequenciesOf(rotary, 64, false);
  const auto& w = frequencies.per_position;
  EXPECT_NEAR(w[10], 0.05623413252, 1e-11);
  EXPECT_DOUBLE_EQ(w[11], 0.03900692656714386);
  EXPECT_DOUBLE_EQ(w[16], 0.0055);
  EXPECT_DOUBLE_EQ(w[22], 0.0001778279410038922);
  EXPECT_DOUBLE_EQ(w[23], 3.33380358040831e-05);
  EXPECT_DOUBLE_EQ(w[31], 3.3338035804083097e-06);
  EXPECT_EQ(frequencies.factor, 1.0f);
}

TEST(RotaryFrequencies, YarnOfGptOss) {
  Rotary rotary(150000.0);
  rotary.scaling = {
      .kind = RopeScalingKind::kYarn, .factor = 32, .original_length = 4096, .truncate = false};
  const RotaryFrequencies frequencies = FrequenciesOf(rotary, 64, false);
  const auto& w = frequencies.per_position;
  EXPECT_DOUBLE_EQ(w[8], 0.050813274815461475);
  EXPECT_DOUBLE_EQ(w[9], 0.03170569618466377);
  EXPECT_DOUBLE_EQ(w[12], 0.006794959489732219);
  EXPECT_DOUBLE_EQ(w[17], 0.0001293187012450632);
  EXPECT_DOUBLE_EQ(w[31], 3.0235114281192144e-07);
  EXPECT_FLOAT_EQ(frequencies.factor, 1.3465735902799727f);
  EXPECT_EQ(FrequenciesOf(rotary, 64, /*inverse=*/true).per_position[9], -w[9]);
}

TEST(RotaryFrequencies, LinearDividesThemAll) {
  Rotary rotary(10000.0);
  rotary.scaling = {.kind = RopeScalingKind::kLinear, .factor = 4};
  EXPECT_DOUBLE_EQ(FrequenciesOf(rotary, 8, false).per_position[0], 0.25);
  EXPECT_DOUBLE_EQ(FrequenciesOf(rotary, 8, false).per_position[2], 0.0025);
}

TEST_P(RopeTest, TurnsPackedDocumentsByTheirOwnPositions) {
  AttentionShape s = {.rows = {2, 5}, .heads = 2, .kv_heads = 1, .head_size = 6};
  const std::vector<int32_t> positions = {0, 1, 0, 1, 2, 0, 0, 1, 2, 3};
  const auto values = Values(s.tokens() * s.qkv_size(), 3);
  Tensor qkv = Input({s.tokens(), s.qkv_size()}, values);
  AttentionShape packed = s;
  packed.rows.positions = Ids(positions);
  Rope(packed, 10000.0, false, qkv);
  const auto turned = Read(qkv);
  // As each row would turn in a sequence where its position is its offset.
  for (size_t row = 0; row < positions.size(); ++row) {
    AttentionShape alone = {.rows = {1, 1}, .heads = 2, .kv_heads = 1, .head_size = 6};
    alone.rows.first = positions[row];
    const auto width = static_cast<size_t>(s.qkv_size());
    Tensor one = Input({1, s.qkv_size()}, std::span(values).subspan(row * width, width));
    Rope(alone, 10000.0, false, one);
    const auto expected = Read(one);
    for (size_t i = 0; i < width; ++i) EXPECT_EQ(turned[row * width + i], expected[i]) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RopeTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
