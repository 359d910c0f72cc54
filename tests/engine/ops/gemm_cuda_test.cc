// Matrix products on a GPU against a plain triple loop, in every orientation.
#include <gtest/gtest.h>

#include <random>
#include <tuple>
#include <vector>

#include "engine/device/cuda/loader.h"
#include "engine/ops/gemm.h"

namespace trimtab {
namespace {

constexpr int64_t kRows = 33;
constexpr int64_t kColumns = 20;
constexpr int64_t kInner = 65;
// fp32 sums of kInner products of order one, in an order the library chooses.
constexpr double kTolerance = 1e-5 * kInner;

enum class Addend { kNothing, kOldValue, kBias };

using Case = std::tuple<Transpose, Transpose, Addend>;

class GemmCudaTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (FindCudaDevices().device_count == 0) {
      GTEST_SKIP() << "no CUDA device: " << FindCudaDevices().reason;
    }
    device_ = MakeCudaDevice(0);
  }

  std::vector<float> Random(int64_t count) {
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = uniform(random_);
    return values;
  }

  Tensor Upload(const Shape& shape, const std::vector<float>& values) {
    Tensor tensor = Tensor::Empty(*device_, shape, DType::kF32, MemoryTag::kWorkspace);
    CopyFromHost(tensor, values);
    return tensor;
  }

  std::mt19937 random_{7};
  std::unique_ptr<Device> device_;
};

/// Element (row, column) of op(matrix), where op(matrix) is [rows, columns].
double At(const std::vector<float>& matrix, Transpose transpose, int64_t rows, int64_t columns,
          int64_t row, int64_t column) {
  const int64_t index = transpose == Transpose::kYes ? column * rows + row : row * columns + column;
  return static_cast<double>(matrix[static_cast<size_t>(index)]);
}

Shape Stored(Transpose transpose, int64_t rows, int64_t columns) {
  return transpose == Transpose::kYes ? Shape{columns, rows} : Shape{rows, columns};
}

TEST_P(GemmCudaTest, AgreesWithATripleLoop) {
  const auto [trans_a, trans_b, addend] = GetParam();
  const std::vector<float> a = Random(kRows * kInner);
  const std::vector<float> b = Random(kInner * kColumns);
  const std::vector<float> old = Random(kRows * kColumns);
  const std::vector<float> bias = Random(kColumns);

  const Tensor device_a = Upload(Stored(trans_a, kRows, kInner), a);
  const Tensor device_b = Upload(Stored(trans_b, kInner, kColumns), b);
  Tensor device_c = Upload({kRows, kColumns}, old);
  const Tensor device_bias = addend == Addend::kBias ? Upload({kColumns}, bias) : Tensor();
  Gemm(device_a, trans_a, device_b, trans_b, device_c, addend == Addend::kOldValue, device_bias);
  std::vector<float> c(old.size());
  CopyToHost(device_c, c);

  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = 0; column < kColumns; ++column) {
      const auto index = static_cast<size_t>(row * kColumns + column);
      double expected = 0;
      if (addend == Addend::kOldValue) expected = static_cast<double>(old[index]);
      if (addend == Addend::kBias) {
        expected = static_cast<double>(bias[static_cast<size_t>(column)]);
      }
      for (int64_t k = 0; k < kInner; ++k) {
        expected +=
            At(a, trans_a, kRows, kInner, row, k) * At(b, trans_b, kInner, kColumns, k, column);
      }
      ASSERT_NEAR(static_cast<double>(c[index]), expected, kTolerance)
          << "row " << row << ", column " << column;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orientations, GemmCudaTest,
                         testing::Combine(testing::Values(Transpose::kNo, Transpose::kYes),
                                          testing::Values(Transpose::kNo, Transpose::kYes),
                                          testing::Values(Addend::kNothing, Addend::kOldValue,
                                                          Addend::kBias)));

}  // namespace
}  // namespace trimtab
