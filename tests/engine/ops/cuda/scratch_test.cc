// Ops whose sums need more scratch than the device has take several turns.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "engine/ops/cuda/emulated_ops.h"
#include "engine/ops/fp8/fused_fp8.h"

namespace trimtab {
namespace {

constexpr int64_t kRows = 300;  // five tiles, the last one in part
constexpr int64_t kColumns = 136;

Tensor Normal(Device& device, const Shape& shape, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = distribution(generator);
  const Tensor tensor = Tensor::Empty(device, shape, DType::kF32, MemoryTag::kActivations);
  device.CopyFromHost(tensor.raw(), values.data(), tensor.bytes());
  return tensor;
}

struct GeluGradients {
  std::vector<uint8_t> rows;
  std::vector<uint8_t> transposed;
  std::vector<float> bias;
  float amax = 0;
};

GeluGradients BackwardWithScratch(int64_t scratch_bytes, bool accumulate) {
  const auto device = MakeEmulatedDevice({.scratch_bytes = scratch_bytes});
  const auto empty = [&](const Shape& shape, DType dtype) {
    return Tensor::Empty(*device, shape, dtype, MemoryTag::kActivations);
  };
  const Tensor x = Normal(*device, {kRows, kColumns}, 1);
  const Tensor dy = Normal(*device, {kRows, kColumns}, 2);
  Tensor dbias = Normal(*device, {kColumns}, 3);
  const Tensor scale = empty({1}, DType::kF32);
  const float one = 1.0f;
  const float zero = 0.0f;
  device->CopyFromHost(scale.raw(), &one, sizeof(one));
  Fp8Output out = {.rows = empty({kRows, kColumns}, DType::kF8E5M2),
                   .transposed = empty({kColumns, kRows}, DType::kF8E5M2),
                   .amax = empty({1}, DType::kF32)};
  device->CopyFromHost(out.amax.raw(), &zero, sizeof(zero));
  GeluBackwardFp8(x, dy, scale, out, dbias, accumulate);

  GeluGradients result;
  result.rows.resize(kRows * kColumns);
  result.transposed.resize(kRows * kColumns);
  result.bias.resize(kColumns);
  device->CopyToHost(result.rows.data(), out.rows.raw(), out.rows.bytes());
  device->CopyToHost(result.transposed.data(), out.transposed.raw(), out.transposed.bytes());
  device->CopyToHost(result.bias.data(), dbias.raw(), dbias.bytes());
  device->CopyToHost(&result.amax, out.amax.raw(), out.amax.bytes());
  return result;
}

TEST(ScratchTest, GeluBackwardToFp8TakesTurns) {
  for (const bool accumulate : {false, true}) {
    const GeluGradients whole = BackwardWithScratch(kMiB, accumulate);
    // Of the five tiles' sums there is room for all but one, for two, and for one.
    for (const int64_t tiles : {4, 2, 1}) {
      SCOPED_TRACE(testing::Message() << tiles << " tiles at once, accumulate " << accumulate);
      const GeluGradients parts =
          BackwardWithScratch(tiles * kColumns * int64_t{sizeof(float)}, accumulate);
      EXPECT_EQ(parts.rows, whole.rows);
      EXPECT_EQ(parts.transposed, whole.transposed);
      EXPECT_EQ(parts.amax, whole.amax);
      for (size_t i = 0; i < whole.bias.size(); ++i) {
        EXPECT_NEAR(parts.bias[i], whole.bias[i], 1e-4f) << i;
      }
    }
  }
}

}  // namespace
}  // namespace trimtab
