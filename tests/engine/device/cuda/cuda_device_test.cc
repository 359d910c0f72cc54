// Memory and copies on a real GPU.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/cuda/loader.h"
#include "engine/device/tensor.h"

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
