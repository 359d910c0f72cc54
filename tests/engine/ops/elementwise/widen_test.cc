#include "engine/ops/elementwise/widen.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr DType kFloats[] = {DType::kF32, DType::kBf16, DType::kF16, DType::kF8E4M3,
                             DType::kF8E5M2};

Tensor Make(Device& device, DType dtype, std::span<const float> values) {
  const Tensor tensor =
      Tensor::Empty(device, {static_cast<int64_t>(values.size())}, dtype, MemoryTag::kWorkspace);
  Upload(tensor, values);
  return tensor;
}

/// Every value of an 8 or 16-bit type, NaN included, several times over: more than one worker's.
Tensor EveryCode(Device& device, DType dtype) {
  const int64_t codes = int64_t{1} << (8 * SizeOf(dtype));
  const Tensor tensor = Tensor::Empty(device, {200003}, dtype, MemoryTag::kWorkspace);
  std::vector<char> bytes(static_cast<size_t>(tensor.bytes()));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const int64_t code = i % codes;
    const auto size = static_cast<size_t>(SizeOf(dtype));
    std::memcpy(&bytes[static_cast<size_t>(i) * size], &code, size);
  }
  device.CopyFromHost(tensor.raw(), bytes.data(), tensor.bytes());
  return tensor;
}

TEST(WidenTest, Fp32PassesStraightThrough) {
  const auto device = MakeCpuDevice(2);
  const Tensor x = Make(*device, DType::kF32, RandomValues(10, 1));
  EXPECT_EQ(F32In(x).data(), x.f32());
  EXPECT_EQ(F32Out(x).data(), x.f32());
  EXPECT_EQ(F32InOut(x).data(), x.f32());
  EXPECT_EQ(F32In(Tensor()).data(), nullptr);
}

TEST(WidenTest, WidensEveryCodeExactly) {
  const auto device = MakeCpuDevice(2);
  for (const DType dtype : kFloats) {
    if (dtype == DType::kF32) continue;
    const Tensor x = EveryCode(*device, dtype);
    const auto expected = Download(x);
    const F32In wide(x);
    for (size_t i = 0; i < expected.size(); ++i) {
      const float value = wide.data()[i];
      ASSERT_TRUE(value == expected[i] || (std::isnan(value) && std::isnan(expected[i])))
          << Name(dtype) << " " << i;
      ASSERT_EQ(std::signbit(value), std::signbit(expected[i])) << Name(dtype) << " " << i;
    }
  }
}

TEST(WidenTest, RoundsResultsWhenTheyEnd) {
  const auto device = MakeCpuDevice(2);
  auto values = RandomValues(150001, 2, 500.0f);
  values[3] = INFINITY;
  values[4] = -1e30f;
  values[5] = 0x1p-25f;
  for (const DType dtype : kFloats) {
    const Tensor x = Make(*device, dtype, std::vector<float>(values.size()));
    {
      F32Out out(x);
      std::copy(values.begin(), values.end(), out.data());
    }
    EXPECT_EQ(Download(x), Rounded(dtype, values)) << Name(dtype);
    {
      F32InOut twice(x);
      for (size_t i = 0; i < values.size(); ++i) twice.data()[i] *= 2;
    }
    auto doubled = Rounded(dtype, values);
    for (float& value : doubled) value *= 2;
    EXPECT_EQ(Download(x), Rounded(dtype, doubled)) << Name(dtype);
  }
}

TEST(WidenTest, RestoresScaledFp8) {
  const auto device = MakeCpuDevice(1);
  const Tensor x = Make(*device, DType::kF8E4M3, std::vector<float>{1, -448, 0.5f});
  const F32In wide(x, 3.0f);
  EXPECT_EQ(std::vector<float>(wide.data(), wide.data() + 3), (std::vector<float>{3, -1344, 1.5f}));
  const Tensor plain = Make(*device, DType::kBf16, std::vector<float>{1});
  EXPECT_DEATH(F32In(plain, 3.0f), "a factor of 3 on bf16");
}

// Operands of one op each have memory of their own, and none of it is the training step's.
TEST(WidenTest, OperandsShareNothingAndCountNothing) {
  const auto device = MakeCpuDevice(1);
  std::vector<float> ramp(1000);
  std::iota(ramp.begin(), ramp.end(), 0.0f);
  const Tensor x = Make(*device, DType::kF16, ramp);
  const Tensor y = Make(*device, DType::kF16, ramp);
  const int64_t before = device->memory().peak_total();
  for (int repeat = 0; repeat < 3; ++repeat) {
    const F32In a(x);
    const F32In short_one(x.Slice(0, {7}));
    F32Out c(y);
    std::fill_n(c.data(), 1000, -1.0f);
    for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(a.data()[i], ramp[i]);
    for (size_t i = 0; i < 7; ++i) ASSERT_EQ(short_one.data()[i], ramp[i]);
  }
  EXPECT_EQ(Download(y), std::vector<float>(1000, -1.0f));
  EXPECT_EQ(device->memory().peak_total(), before);
}

}  // namespace
}  // namespace trimtab
