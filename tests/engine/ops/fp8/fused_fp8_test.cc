#include "engine/ops/fp8/fused_fp8.h"

#include <cmath>

#include "engine/ops/activation/activation.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/norm/norm.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr double kEpsilon = 1e-5;

struct Case {
  int64_t rows, columns;
};
// Less than a tile, a tile, tiles with ragged edges; rows on which packs may and may not be used.
constexpr Case kCases[] = {{1, 1}, {3, 17}, {16, 8}, {64, 128}, {130, 136}, {80, 257}};

// Every fused op against the plain op on fp32 tensors of the same values, then the formula of
// quantising in double.
class FusedFp8Test : public OpTest {
 protected:
  Tensor Scalar(float value) { return Input({1}, std::vector<float>{value}, DType::kF32); }

  Fp8Output NewOutput(const Case& c, DType type) {
    return {.rows = Output({c.rows, c.columns}, type),
            .transposed = Output({c.columns, c.rows}, type),
            .amax = Scalar(0.0f)};
  }

  /// `expected` [rows, columns] before scaling.
  void ExpectQuantised(const Fp8Output& out, const Tensor& expected, float scale) {
    const auto values = Read(expected);
    const DType type = out.rows.dtype();
    double largest = 0;
    std::vector<double> stored;
    for (const float value : values) {
      const double magnitude = std::abs(static_cast<double>(value));
      largest = std::max(largest, magnitude);
      const double limit = Fp8Max(type);
      stored.push_back(
          std::clamp(static_cast<double>(value) * static_cast<double>(scale), -limit, limit));
    }
    const auto rows = Read(out.rows);
    ExpectClose(rows, stored, tolerance(type).elementwise, "rows");
    ExpectClose(Read(out.amax), std::vector<double>{largest}, tolerance(DType::kF32).reduction,
                "amax");
    // The copies hold the same codes, whatever the rounding.
    const auto codes = ReadBytes(out.rows);
    const auto transposed = ReadBytes(out.transposed);
    const auto count = static_cast<size_t>(out.rows.dim(0));
    const auto width = static_cast<size_t>(out.rows.dim(1));
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < width; ++j) {
        ASSERT_EQ(transposed[j * count + i], codes[i * width + j])
            << "row " << i << " column " << j;
      }
    }
  }

  /// Whether the kernels are the host compiler's.
  bool on_host() const { return GetParam().kind == DeviceKind::kCpu || GetParam().make != nullptr; }

  /// The same values in fp32.
  Tensor Wide(const Shape& shape, std::span<const float> values) {
    return Input(shape, values, DType::kF32);
  }

  /// A scale under which about a tenth of the range saturates.
  static float ScaleFor(DType type, float largest) { return Fp8Max(type) / (0.9f * largest); }
};

TEST_P(FusedFp8Test, LayerNormForward) {
  for (const DType type : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const Case& c : kCases) {
      if (c.columns == 1 || Skips(c.rows * c.columns)) continue;
      // Every other case without a bias, and the others with 1 + weight.
      const bool with_bias = c.columns % 2 == 0;
      const NormOptions options(kEpsilon, !with_bias);
      const auto bias_or_none = [&](const Tensor& bias) { return with_bias ? bias : Tensor(); };
      const Shape matrix = {c.rows, c.columns};
      const auto x = Values(matrix.numel(), 1, 3.0f);
      const auto weight = Values(c.columns, 2);
      const auto bias = Values(c.columns, 3);
      const float scale = ScaleFor(type, 2.5f);
      Fp8Output out = NewOutput(c, type);
      Tensor mean = Output({c.rows}, DType::kF32);
      Tensor rstd = Output({c.rows}, DType::kF32);
      LayerNormForwardFp8(Input(matrix, x), Input({c.columns}, weight),
                          bias_or_none(Input({c.columns}, bias)), options, Scalar(scale), out, mean,
                          rstd);
      Tensor y = Output(matrix, DType::kF32);
      Tensor plain_mean = Output({c.rows}, DType::kF32);
      Tensor plain_rstd = Output({c.rows}, DType::kF32);
      LayerNormForward(Wide(matrix, x), Wide({c.columns}, weight),
                       bias_or_none(Wide({c.columns}, bias)), options, y, plain_mean, plain_rstd);
      ExpectQuantised(out, y, scale);
      const double allowed = tolerance(DType::kF32).reduction;
      ExpectClose(Read(mean), ToDouble(Read(plain_mean)), allowed, "mean");
      ExpectClose(Read(rstd), ToDouble(Read(plain_rstd)), allowed, "rstd");
    }
  }
}

TEST_P(FusedFp8Test, RmsNormForward) {
  for (const DType type : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const Case& c : kCases) {
      if (Skips(c.rows * c.columns)) continue;
      const Shape matrix = {c.rows, c.columns};
      const auto x = Values(matrix.numel(), 1, 3.0f);
      const auto weight = Values(c.columns, 2);
      const float scale = ScaleFor(type, 1.7f);
      Fp8Output out = NewOutput(c, type);
      Tensor rstd = Output({c.rows}, DType::kF32);
      RmsNormForwardFp8(Input(matrix, x), Input({c.columns}, weight), kEpsilon, Scalar(scale), out,
                        rstd);
      Tensor y = Output(matrix, DType::kF32);
      Tensor plain_rstd = Output({c.rows}, DType::kF32);
      RmsNormForward(Wide(matrix, x), Wide({c.columns}, weight), kEpsilon, y, plain_rstd);
      ExpectQuantised(out, y, scale);
      ExpectClose(Read(rstd), ToDouble(Read(plain_rstd)), tolerance(DType::kF32).reduction, "rstd");
      Fp8Output only_rows = {.rows = Output(matrix, type)};
      RmsNormForwardFp8(Input(matrix, x), Input({c.columns}, weight), kEpsilon, Scalar(scale),
                        only_rows, rstd);
      EXPECT_EQ(ReadBytes(only_rows.rows), ReadBytes(out.rows));
    }
  }
}

TEST_P(FusedFp8Test, GeluForward) {
  for (const DType type : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const Case& c : kCases) {
      if (Skips(c.rows * c.columns)) continue;
      const Shape matrix = {c.rows, c.columns};
      const auto x = Values(matrix.numel(), 1, 4.0f);
      const float scale = ScaleFor(type, 4.0f);
      Fp8Output out = NewOutput(c, type);
      GeluForwardFp8(Input(matrix, x), Scalar(scale), out);
      Tensor y = Output(matrix, DType::kF32);
      ActivationForward(ActivationFunction::kGelu, Wide(matrix, x), y);
      ExpectQuantised(out, y, scale);
    }
  }
}

TEST_P(FusedFp8Test, GeluBackwardAndItsBiasGradient) {
  for (const Case& c : kCases) {
    if (Skips(c.rows * c.columns)) continue;
    const DType type = DType::kF8E5M2;
    const Shape matrix = {c.rows, c.columns};
    const auto x = Values(matrix.numel(), 1, 4.0f);
    const auto dy = Values(matrix.numel(), 2);
    const auto before = GradientValues(c.columns, 3);
    const float scale = ScaleFor(type, 1.1f);
    Tensor dx = Output(matrix, DType::kF32);
    ActivationBackward(ActivationFunction::kGelu, Wide(matrix, x), Wide(matrix, dy), dx);
    for (const bool accumulate : {false, true}) {
      Fp8Output out = NewOutput(c, type);
      const DType g = gradient_dtype();
      Tensor dbias = accumulate ? Input({c.columns}, before, g) : Output({c.columns}, g);
      GeluBackwardFp8(Input(matrix, x), Input(matrix, dy), Scalar(scale), out, dbias, accumulate);
      ExpectQuantised(out, dx, scale);
      Tensor sums = accumulate ? Wide({c.columns}, before) : Output({c.columns}, DType::kF32);
      BiasBackward(dx, sums, accumulate);
      ExpectClose(Read(dbias), ToDouble(Read(sums)), tolerance(g).reduction, "dbias");
    }
    Fp8Output transposed = {.transposed = Output({c.columns, c.rows}, type)};
    Fp8Output both = NewOutput(c, type);
    Tensor none;
    GeluBackwardFp8(Input(matrix, x), Input(matrix, dy), Scalar(scale), transposed, none, false);
    GeluBackwardFp8(Input(matrix, x), Input(matrix, dy), Scalar(scale), both, none, false);
    EXPECT_EQ(ReadBytes(transposed.transposed), ReadBytes(both.transposed));
  }
}

TEST_P(FusedFp8Test, SwiGlu) {
  for (const Case& c : kCases) {
    if (Skips(c.rows * c.columns)) continue;
    const Shape matrix = {c.rows, c.columns};
    const Shape pair = {c.rows, 2 * c.columns};
    const auto gate_up = Values(pair.numel(), 1, 2.0f);
    const auto dy = Values(matrix.numel(), 2);
    const float scale = ScaleFor(DType::kF8E4M3, 3.5f);
    Fp8Output out = NewOutput(c, DType::kF8E4M3);
    SwiGluForwardFp8(Input(pair, gate_up), Scalar(scale), out);
    Tensor y = Output(matrix, DType::kF32);
    GatedActivationForward(ActivationFunction::kSilu, Wide(pair, gate_up), y);
    ExpectQuantised(out, y, scale);

    const float gradient_scale = ScaleFor(DType::kF8E5M2, 2.0f);
    Fp8Output gradient = NewOutput({c.rows, 2 * c.columns}, DType::kF8E5M2);
    SwiGluBackwardFp8(Input(pair, gate_up), Input(matrix, dy), Scalar(gradient_scale), gradient);
    Tensor dgate_up = Output(pair, DType::kF32);
    GatedActivationBackward(ActivationFunction::kSilu, Wide(pair, gate_up), Wide(matrix, dy),
                            dgate_up);
    ExpectQuantised(gradient, dgate_up, gradient_scale);
  }
}

TEST_P(FusedFp8Test, CopiesBesideTheBackwardPassesOfNorms) {
  const DType type = DType::kF8E5M2;
  for (const Case& c : kCases) {
    if (c.columns == 1 || Skips(c.rows * c.columns)) continue;
    const Shape matrix = {c.rows, c.columns};
    const Shape vector = {c.columns};
    const Tensor dy = Input(matrix, Values(matrix.numel(), 1));
    const Tensor x = Input(matrix, Values(matrix.numel(), 2));
    const Tensor weight = Input(vector, Values(c.columns, 3));
    const Tensor mean = Input({c.rows}, RandomValues(c.rows, 4), DType::kF32);
    const Tensor rstd =
        Input({c.rows}, std::vector<float>(static_cast<size_t>(c.rows), 1.5f), DType::kF32);
    const auto residual = Values(matrix.numel(), 5);
    for (const bool centered : {true, false}) {
      // The gradients of input, weight and bias.
      const auto backward = [&](const Fp8Beside& copies) {
        Tensor dx = Input(matrix, residual);
        Tensor dweight = Output(vector, gradient_dtype());
        Tensor dbias = centered ? Output(vector, gradient_dtype()) : dweight;
        if (centered) {
          LayerNormBackward(dy, x, weight, mean, rstd, dx, dweight, dbias, false, false, copies);
        } else {
          RmsNormBackward(dy, x, weight, rstd, dx, dweight, false, false, copies);
        }
        return std::vector<Tensor>{dx, dweight, dbias};
      };
      const std::vector<Tensor> apart = backward({});
      Fp8Beside copies = {.scale = Scalar(300.0f), .out = NewOutput(c, type)};
      const std::vector<Tensor> beside = backward(copies);
      EXPECT_EQ(Read(beside[0]), Read(apart[0]));
      // Rows are added up in another order where blocks have others of them.
      const double allowed = tolerance(gradient_dtype()).reduction;
      ExpectClose(Read(beside[1]), ToDouble(Read(apart[1])), allowed, "dweight");
      ExpectClose(Read(beside[2]), ToDouble(Read(apart[2])), allowed, "dbias");
      Fp8Output expected = NewOutput(c, type);
      Quantize(beside[0], copies.scale, expected);
      EXPECT_EQ(Read(copies.out.amax), Read(expected.amax));
      EXPECT_EQ(ReadBytes(copies.out.rows), ReadBytes(expected.rows));
      EXPECT_EQ(ReadBytes(copies.out.transposed), ReadBytes(expected.transposed));
    }
  }
}

TEST_P(FusedFp8Test, RopeBackward) {
  struct Turn {
    AttentionShape shape;
    int64_t dims = 0;
    bool interleaved = false;
    int64_t ranks = 1;
  };
  // Packs may be used on the rows of the third to the sixth. The last two turn parts of a sequence
  // and as many dims as there may be.
  for (const Turn& c :
       {Turn{{{1, 1}, 1, 1, 2}}, Turn{{{3, 17}, 4, 2, 6}}, Turn{{{2, 65}, 2, 1, 64}},
        Turn{{{1, 70}, 3, 1, 96}}, Turn{{{1, 16}, 2, 2, 128}}, Turn{{{2, 17}, 2, 1, 80}, 32},
        Turn{{{2, 17}, 2, 1, 80}, 20}, Turn{{{2, 17}, 2, 2, 64}, 16, true},
        Turn{{{2, 34}, 2, 1, 16}, 0, false, 3}, Turn{{{1, 9}, 1, 1, 256}}}) {
    AttentionShape s = c.shape;
    const Case matrix = {s.tokens(), s.qkv_size()};
    const Shape shape = {matrix.rows, matrix.columns};
    if (Skips(shape.numel())) continue;
    Rotary rotary(10000.0);
    rotary.dims = c.dims;
    rotary.interleaved = c.interleaved;
    s.rows = RowLayout::ZigZag(s.rows.batch, c.ranks * s.rows.sequence, c.ranks, c.ranks - 1);
    const auto values = Values(shape.numel(), 1);
    const float scale = ScaleFor(DType::kF8E5M2, 1.3f);
    Fp8Output out = NewOutput(matrix, DType::kF8E5M2);
    const Tensor dqkv = Input(shape, values);
    RopeBackwardFp8(s, rotary, dqkv, Scalar(scale), out);
    Tensor turned = Input(shape, values);
    Rope(s, rotary, /*inverse=*/true, turned);
    ExpectQuantised(out, turned, scale);
    Fp8Output apart = NewOutput(matrix, DType::kF8E5M2);
    Quantize(turned, Scalar(scale), apart);
    // On a GPU the compiler may contract the two kernels' sums of products differently.
    if (on_host()) {
      EXPECT_EQ(Read(out.amax), Read(apart.amax));
      EXPECT_EQ(ReadBytes(out.rows), ReadBytes(apart.rows));
    }
    EXPECT_EQ(Read(dqkv), Read(Input(shape, values))) << "stays as it is";
    Fp8Output only_rows = {.rows = Output(shape, DType::kF8E5M2)};
    RopeBackwardFp8(s, rotary, dqkv, Scalar(scale), only_rows);
    EXPECT_EQ(ReadBytes(only_rows.rows), ReadBytes(out.rows));
  }
}

// What is counted of a norm is one pass: each value is read once, and each code written once to
// either copy.
TEST(FusedFp8Records, OfNormsReadNoCodeBack) {
  constexpr int64_t kRows = 48;
  constexpr int64_t kColumns = 64;
  constexpr int64_t kValues = kRows * kColumns;
  const auto bytes = [](const OpRecord& record) { return record.bytes; };
  EXPECT_EQ(bytes(RmsNormForwardFp8Record(kRows, kColumns, DType::kBf16, true)),
            kValues * (2 + 1 + 1) + 2 * kColumns + 4 * kRows);
  EXPECT_EQ(bytes(LayerNormForwardFp8Record(kRows, kColumns, DType::kBf16, true)),
            kValues * (2 + 1 + 1) + 2 * 2 * kColumns + 2 * 4 * kRows);
  // Instead of storing the result, and reading it to quantise it.
  EXPECT_EQ(bytes(RmsNormForwardRecord(kRows, kColumns, DType::kBf16)) +
                bytes(QuantizeRecord(kRows, kColumns, DType::kBf16, true, true)) -
                bytes(RmsNormForwardFp8Record(kRows, kColumns, DType::kBf16, true)),
            kValues * (2 + 2));
  const OpRecord backward = RmsNormBackwardRecord(kRows, kColumns, DType::kBf16);
  EXPECT_EQ(bytes(BesideFp8(backward, true)) - bytes(backward), kValues * (1 + 1));
}

INSTANTIATE_TEST_SUITE_P(Devices, FusedFp8Test, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
