#include "engine/ops/fp8/quantize.h"

#include <cmath>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr DType kFp8Types[] = {DType::kF8E4M3, DType::kF8E5M2};

class QuantizeTest : public OpTest {
 protected:
  Tensor Scalar(float value) { return Input({1}, std::vector<float>{value}, DType::kF32); }
};

std::vector<float> Transposed(std::span<const float> values, int64_t rows, int64_t columns) {
  std::vector<float> result;
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) {
      result.push_back(values[static_cast<size_t>(i * columns + j)]);
    }
  }
  return result;
}

float LargestMagnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

TEST_P(QuantizeTest, StoresScaledValuesAndTheirTranspose) {
  for (const DType type : kFp8Types) {
    for (const int64_t rows : {1, 17, 130}) {
      for (const int64_t columns : {1, 16, 33, 260}) {
        if (Skips(rows * columns)) continue;
        // Some values end above what the type holds, some below its smallest.
        const float scale = Fp8Max(type) / 0.9f;
        const auto x = Values(rows * columns, 1);
        std::vector<float> scaled = x;
        for (float& value : scaled) value *= scale;
        const auto expected = Rounded(type, scaled);
        const Tensor x_device = Input({rows, columns}, x);
        Fp8Output out = {.rows = Output({rows, columns}, type),
                         .transposed = Output({columns, rows}, type),
                         .amax = Scalar(0.0f)};
        Quantize(x_device, Scalar(scale), out);
        EXPECT_EQ(Read(out.rows), expected);
        EXPECT_EQ(Read(out.transposed), Transposed(expected, rows, columns));
        EXPECT_EQ(Read(out.amax)[0], LargestMagnitude(x));
        Fp8Output only_rows = {.rows = Output({rows, columns}, type)};
        Quantize(x_device, Scalar(scale), only_rows);
        EXPECT_EQ(Read(only_rows.rows), expected);
        Fp8Output only_transposed = {.transposed = Output({columns, rows}, type)};
        Quantize(x_device, Scalar(scale), only_transposed);
        EXPECT_EQ(Read(only_transposed.transposed), Transposed(expected, rows, columns));
      }
    }
  }
}

TEST_P(QuantizeTest, SaturatesAndKeepsNaN) {
  for (const DType type : kFp8Types) {
    const float most = Fp8Max(type);
    const std::vector<float> x = {INFINITY, -INFINITY, NAN, 1.0f};
    Fp8Output out = {.rows = Output({1, 4}, type), .amax = Scalar(2.0f)};
    Quantize(Input({1, 4}, x), Scalar(1.0f), out);
    const auto stored = Read(out.rows);
    EXPECT_EQ(stored[0], most);
    EXPECT_EQ(stored[1], -most);
    EXPECT_TRUE(std::isnan(stored[2]));
    EXPECT_EQ(stored[3], 1.0f);
    EXPECT_EQ(Read(out.amax)[0], INFINITY);
  }
}

TEST_P(QuantizeTest, AmaxRaisesWhatIsThere) {
  for (const int64_t count : {1, 3, 1025, 70001}) {
    if (Skips(count)) continue;
    auto x = Values(count, 2);
    x.back() = -2.0f;
    const Tensor x_device = Input({count}, x);
    Tensor amax = Scalar(0.5f);
    Amax(x_device, amax);
    EXPECT_EQ(Read(amax)[0], 2.0f);
    Tensor higher = Scalar(3.0f);
    Amax(x_device, higher);
    EXPECT_EQ(Read(higher)[0], 3.0f);
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
      x[x.size() / 2] = bad;
      Tensor broken = Scalar(0.0f);
      Amax(Input({count}, x), broken);
      EXPECT_EQ(Read(broken)[0], INFINITY);
    }
  }
}

TEST_P(QuantizeTest, ScalesFollowTheHistory) {
  const float inf = INFINITY;
  const std::vector<float> fp8_max = {448, 57344, 448, 448, 448, 448};
  const Tensor limits = Input({6}, fp8_max, DType::kF32);
  const std::vector<float> old(6, 8.0f);
  // Per column: highest last, highest now, none at all, not finite, tiny, one of two.
  const std::vector<float> history = {1, 7, 0, 3,   1e-40f, 0,  //
                                      2, 1, 0, inf, 0,      0,  //
                                      4, 2, 0, 1,   0,      14};
  Tensor amax = Input({3, 6}, history, DType::kF32);
  Fp8Scales scales = {Input({6}, old, DType::kF32), Output({6, kFp8InverseStride}, DType::kF32)};
  UpdateFp8Scales(limits, amax, scales);
  const auto scale = Read(scales.scale);
  const auto inverse = Read(scales.inverse);
  EXPECT_FLOAT_EQ(scale[0], 112.0f);
  EXPECT_FLOAT_EQ(scale[1], 8192.0f);
  EXPECT_EQ(scale[2], 8.0f);
  EXPECT_EQ(scale[3], 8.0f);
  EXPECT_TRUE(std::isfinite(scale[4]) && scale[4] > 1e38f);
  EXPECT_FLOAT_EQ(scale[5], 32.0f);
  for (size_t i = 0; i < scale.size(); ++i) {
    EXPECT_FLOAT_EQ(inverse[i * kFp8InverseStride], 1.0f / scale[i]);
  }
  std::vector<float> moved(6, 0.0f);
  moved.insert(moved.end(), history.begin(), history.begin() + 12);
  EXPECT_EQ(Read(amax), moved);
}

TEST_P(QuantizeTest, OneRowIsCurrentScaling) {
  Tensor amax = Input({1, 2}, std::vector<float>{2, 0}, DType::kF32);
  Fp8Scales scales = {Input({2}, std::vector<float>{1, 1}, DType::kF32),
                      Output({2, kFp8InverseStride}, DType::kF32)};
  UpdateFp8Scales(Input({2}, std::vector<float>{448, 448}, DType::kF32), amax, scales);
  EXPECT_EQ(Read(scales.scale), (std::vector<float>{224, 1}));
  EXPECT_EQ(Read(amax), (std::vector<float>{0, 0}));
}

INSTANTIATE_TEST_SUITE_P(Devices, QuantizeTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
