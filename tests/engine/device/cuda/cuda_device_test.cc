// Memory, copies and graphs on a real GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/cuda/loader.h"
#include "engine/device/tensor.h"
#include "engine/ops/gemm/gemm.h"

namespace trimtab {
namespace {

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (FindCudaDevices().device_count == 0) {
      GTEST_SKIP() << "no CUDA device: " << FindCudaDevices().reason;
    }
    device_ = MakeCudaDevice(0);
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CudaDeviceTest, SaysWhatItIs) { EXPECT_EQ(device_->kind(), DeviceKind::kCuda); }

TEST_F(CudaDeviceTest, CopiesBackWhatWasCopiedIn) {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), -500.0f);
  Tensor tensor = Tensor::Empty(*device_, {10, 100}, DType::kF32, MemoryTag::kWeights);
  CopyFromHost(tensor, values);
  std::vector<float> copy(values.size());
  CopyToHost(tensor, copy);
  EXPECT_EQ(copy, values);
}

TEST_F(CudaDeviceTest, CopiesMoreThanItsStagingHoldsAndLetsTheHostReuseItsMemoryAtOnce) {
  constexpr int64_t kCount = 5'000'003;  // 19 MiB, no multiple of a slot
  std::vector<int32_t> values(kCount);
  Tensor first = Tensor::Empty(*device_, {kCount}, DType::kI32, MemoryTag::kWeights);
  Tensor second = Tensor::Empty(*device_, {kCount}, DType::kI32, MemoryTag::kWeights);
  std::iota(values.begin(), values.end(), 0);
  CopyFromHost(first, values);
  std::iota(values.begin(), values.end(), 7);
  CopyFromHost(second, values);
  std::fill(values.begin(), values.end(), -1);
  std::vector<int32_t> copy(kCount);
  for (const auto& [tensor, start] : {std::pair{first, 0}, std::pair{second, 7}}) {
    device_->CopyToHost(copy.data(), tensor.raw(), tensor.bytes());
    std::iota(values.begin(), values.end(), start);
    EXPECT_EQ(copy, values);
  }
}

TEST_F(CudaDeviceTest, ReplaysCapturedWorkOnWhateverTheMemoryHoldsThen) {
  ASSERT_TRUE(device_->CanCapture());
  Tensor a = Tensor::Empty(*device_, {8, 8}, DType::kF32, MemoryTag::kWeights);
  Tensor b = Tensor::Empty(*device_, {8, 8}, DType::kF32, MemoryTag::kWeights);
  Tensor c = Tensor::Empty(*device_, {8, 8}, DType::kF32, MemoryTag::kWeights);
  std::vector<float> unit(64, 0.0f);
  for (size_t i = 0; i < 8; ++i) unit[9 * i] = 1;
  std::vector<float> values(64);
  CopyFromHost(b, unit);
  CopyFromHost(c, std::vector<float>(64, -1.0f));
  const std::unique_ptr<CapturedWork> work = device_->Capture([&] {
    // Through memory of the capture's own: two products by the unit matrix.
    Tensor temporary = Tensor::Empty(*device_, {8, 8}, DType::kF32, MemoryTag::kWorkspace);
    Gemm(a, Transpose::kNo, b, Transpose::kNo, temporary);
    Gemm(temporary, Transpose::kNo, b, Transpose::kNo, c);
  });
  CopyToHost(c, values);
  EXPECT_EQ(values, std::vector<float>(64, -1.0f)) << "ran while it was captured";
  for (const float start : {0.0f, 100.0f}) {
    std::vector<float> expected(64);
    std::iota(expected.begin(), expected.end(), start);
    CopyFromHost(a, expected);
    // Would overwrite the capture's memory if that had not been kept.
    const Tensor other = Tensor::Empty(*device_, {8, 8}, DType::kF32, MemoryTag::kWorkspace);
    work->Replay();
    CopyToHost(c, values);
    EXPECT_EQ(values, expected);
  }
}

TEST_F(CudaDeviceTest, AnErrorWithinACaptureEndsItAndTheDeviceGoesOn) {
  EXPECT_THROW(device_->Capture([] { throw EnvironmentError("of the work"); }), EnvironmentError);
  const Tensor tensor = Tensor::Empty(*device_, {4}, DType::kF32, MemoryTag::kWeights);
  std::vector<float> copy(4);
  CopyToHost(tensor, copy);
}

TEST_F(CudaDeviceTest, CountsEveryByteUnderItsTag) {
  {
    const Tensor weights = Tensor::Empty(*device_, {3, 5}, DType::kF32, MemoryTag::kWeights);
    EXPECT_EQ(device_->memory().current_total(), 60);
    const auto index = static_cast<size_t>(MemoryTag::kWeights);
    EXPECT_EQ(device_->memory().current_by_tag()[index], 60);
  }
  EXPECT_EQ(device_->memory().current_total(), 0);
  EXPECT_EQ(device_->memory().peak_total(), 60);
}

TEST_F(CudaDeviceTest, ReportsAMachineOutOfMemoryAndCarriesOn) {
  constexpr int64_t kPetabyte = int64_t{1} << 50;
  EXPECT_THROW(device_->Allocate(kPetabyte, MemoryTag::kWorkspace), OutOfMemoryError);
  EXPECT_EQ(device_->memory().current_total(), 0);
  EXPECT_NO_THROW(device_->Allocate(1024, MemoryTag::kWorkspace));
}

TEST_F(CudaDeviceTest, TwoRanksShareOneGpu) {
  const std::unique_ptr<Device> other = MakeCudaDevice(0);
  Tensor first = Tensor::Empty(*device_, {4}, DType::kF32, MemoryTag::kWeights);
  Tensor second = Tensor::Empty(*other, {4}, DType::kF32, MemoryTag::kWeights);
  CopyFromHost(first, std::vector<float>{1, 2, 3, 4});
  CopyFromHost(second, std::vector<float>{5, 6, 7, 8});
  std::vector<float> copy(4);
  CopyToHost(first, copy);
  EXPECT_EQ(copy, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(other->memory().current_total(), 16);
}

}  // namespace
}  // namespace trimtab
