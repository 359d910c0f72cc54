#include "engine/device/tensor.h"

#include <gtest/gtest.h>

#include <vector>

namespace trimtab {
namespace {

Tensor Numbered(Device& device, const Shape& shape) {
  Tensor tensor = Tensor::Empty(device, shape, DType::kF32, MemoryTag::kActivations);
  std::vector<float> values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<float>(i));
  CopyFromHost(tensor, values);
  return tensor;
}

std::vector<float> Values(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  CopyToHost(tensor, values);
  return values;
}

TEST(ShapeTest, CountsAndPrints) {
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape().ToString(), "[]");
  EXPECT_EQ((Shape{4, 64, 768}).numel(), 4 * 64 * 768);
  EXPECT_EQ((Shape{4, 64, 768}).ToString(), "[4, 64, 768]");
  EXPECT_EQ((Shape{3, 0}).numel(), 0);
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
  EXPECT_DEATH((Shape{1, 2, 3, 4, 5}), "at most 4 dimensions, got 5");
}

TEST(TensorTest, CountsUnderItsTagUntilTheLastViewGoes) {
  const auto device = MakeCpuDevice(1);
  {
    Tensor view;
    EXPECT_FALSE(view.defined());
    {
      const Tensor tensor = Numbered(*device, {3, 4});
      EXPECT_EQ(tensor.bytes(), 48);
      view = tensor.Slice(4, {4});
    }
    EXPECT_EQ(device->memory().current_total(), 48);
    EXPECT_EQ(Values(view), (std::vector<float>{4, 5, 6, 7}));
  }
  EXPECT_EQ(device->memory().current_total(), 0);
}

TEST(TensorTest, ViewsShareMemoryAndNest) {
  const auto device = MakeCpuDevice(1);
  const Tensor tensor = Numbered(*device, {4, 3});
  Tensor rows = tensor.Slice(3, {2, 3});
  const Tensor last = rows.Slice(3, {3});
  CopyFromHost(rows, std::vector<float>{-1, -2, -3, -4, -5, -6});
  EXPECT_EQ(Values(tensor), (std::vector<float>{0, 1, 2, -1, -2, -3, -4, -5, -6, 9, 10, 11}));
  EXPECT_EQ(Values(last), (std::vector<float>{-4, -5, -6}));
  EXPECT_EQ(Values(tensor.Reshape({2, 6}).Slice(6, {6})), Values(tensor.Slice(6, {6})));
}

TEST(TensorTest, HoldsIds) {
  const auto device = MakeCpuDevice(1);
  Tensor ids = Tensor::Empty(*device, {3}, DType::kI32, MemoryTag::kWorkspace);
  CopyFromHost(ids, std::vector<int32_t>{7, -1, 50256});
  EXPECT_EQ(ids.i32()[2], 50256);
  EXPECT_DEATH(ids.f32(), "tensor is int32, asked for fp32");
}

TEST(TensorTest, RoundsFloatsOnTheirWayIn) {
  const auto device = MakeCpuDevice(1);
  // One is exact in both, two are rounded up and down, and one is a tie.
  const std::vector<float> values = {-2.5f, 1.0f + 0x1.8p-8f, 1.0f + 0x1p-12f, 1.0f + 0x1p-8f};
  Tensor bf16 = Tensor::Empty(*device, {4}, DType::kBf16, MemoryTag::kWeights);
  CopyFromHost(bf16, values);
  EXPECT_EQ(Values(bf16), (std::vector<float>{-2.5f, 1.0f + 0x1p-7f, 1.0f, 1.0f}));
  Tensor fp16 = Tensor::Empty(*device, {4}, DType::kF16, MemoryTag::kWeights);
  CopyFromHost(fp16, values);
  EXPECT_EQ(Values(fp16), (std::vector<float>{-2.5f, 1.0f + 0x1.8p-8f, 1.0f, 1.0f + 0x1p-8f}));
}

TEST(TensorTest, GivesTheBitsOfSixteenBitTypes) {
  const auto device = MakeCpuDevice(1);
  for (const auto& [dtype, bits] : {std::pair{DType::kBf16, 0x3f80}, {DType::kF16, 0x3c00}}) {
    Tensor one = Tensor::Empty(*device, {1}, dtype, MemoryTag::kWeights);
    CopyFromHost(one, std::vector<float>{1.0f});
    EXPECT_EQ(*one.u16(), bits);
  }
  EXPECT_EQ(Tensor::Empty(*device, {3}, DType::kU16, MemoryTag::kOptimizer).bytes(), 6);
  EXPECT_DEATH(Numbered(*device, {1}).u16(), "tensor is fp32, asked for 16-bit values");
}

TEST(TensorTest, RefusesWhatDoesNotFit) {
  const auto device = MakeCpuDevice(1);
  Tensor tensor = Numbered(*device, {2, 3});
  EXPECT_DEATH(tensor.Slice(4, {3}), "slice .3. at element 4 passes the end of .2, 3.");
  EXPECT_DEATH(CopyFromHost(tensor, std::vector<float>(5)), "copying 5 values of fp32");
  EXPECT_DEATH(Tensor().raw(), "undefined tensor");
}

TEST(TensorTest, MetaTensorsHaveShapesAndNoData) {
  const auto device = MakeMetaDevice(1);
  Tensor tensor = Tensor::Empty(*device, {1000, 1000, 1000}, DType::kF32, MemoryTag::kWeights);
  EXPECT_EQ(tensor.bytes(), 4'000'000'000);
  EXPECT_EQ(tensor.Slice(5, {10}).raw(), nullptr);
  EXPECT_EQ(device->memory().current_total(), 4'000'000'000);
}

}  // namespace
}  // namespace trimtab
