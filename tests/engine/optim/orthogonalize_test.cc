#include "engine/optim/orthogonalize.h"

#include <gtest/gtest.h>

#include <random>

namespace trimtab {
namespace {

std::vector<float> Random(int64_t count) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// The singular values of what comes out are near 1: x x^T (or x^T x) is near the identity, and the
// iterations never leave [0.6, 1.3].
TEST(OrthogonalizeTest, LeavesSingularValuesNearOne) {
  const auto device = MakeCpuDevice(1);
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{6, 40}, {40, 6}, {5, 80}}) {
    Tensor x = Tensor::Empty(*device, {rows, columns}, DType::kF32, MemoryTag::kWorkspace);
    CopyFromHost(x, Random(rows * columns));
    Orthogonalize(x);
    const bool wide = rows < columns;
    const int64_t side = wide ? rows : columns;
    const int64_t length = wide ? columns : rows;
    const auto at = [&](int64_t i, int64_t k) {
      return static_cast<double>(x.f32()[wide ? i * columns + k : k * columns + i]);
    };
    for (int64_t i = 0; i < side; ++i) {
      for (int64_t j = 0; j < side; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < length; ++k) sum += at(i, k) * at(j, k);
        EXPECT_NEAR(sum, i == j ? 1.0 : 0.0, 0.65) << i << " " << j;
        if (i == j) {
          EXPECT_GT(sum, 0.4);
        }
      }
    }
  }
}

// It depends on directions alone, and turning a matrix turns the result.
TEST(OrthogonalizeTest, IsThatOfAnyMultipleAndOfTheTransposed) {
  const auto device = MakeCpuDevice(1);
  const std::vector<float> values = Random(12 * 7);
  const auto run = [&](int64_t rows, int64_t columns, float factor, bool turned) {
    Tensor x = Tensor::Empty(*device, {rows, columns}, DType::kF32, MemoryTag::kWorkspace);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        x.f32()[i * columns + j] =
            factor * values[static_cast<size_t>(turned ? j * rows + i : i * columns + j)];
      }
    }
    Orthogonalize(x);
    return x;
  };
  const Tensor plain = run(12, 7, 1.0f, false);
  const Tensor small = run(12, 7, 1e-3f, false);
  const Tensor turned = run(7, 12, 1.0f, true);
  for (int64_t i = 0; i < 12; ++i) {
    for (int64_t j = 0; j < 7; ++j) {
      EXPECT_NEAR(small.f32()[i * 7 + j], plain.f32()[i * 7 + j], 1e-4);
      EXPECT_NEAR(turned.f32()[j * 12 + i], plain.f32()[i * 7 + j], 1e-4);
    }
  }
}

}  // namespace
}  // namespace trimtab
