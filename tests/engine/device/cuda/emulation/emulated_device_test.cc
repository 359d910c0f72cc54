#include "engine/device/cuda/emulation/emulated_device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "engine/device/tensor.h"

namespace trimtab {
namespace {

class EmulatedDeviceTest : public testing::Test {
 protected:
  Tensor Empty(int64_t n) { return Tensor::Empty(device_, {n}, DType::kF32, MemoryTag::kWeights); }
  float First(const Tensor& x) {
    float value = 0;
    device_.CopyToHost(&value, x.raw(), sizeof(value));
    return value;
  }
  // What a launch on this device's stream would do.
  void AddOne(const Tensor& x) {
    float* data = x.f32();
    emulation::Submit(device_.stream(), [data] { *data += 1.0f; });
  }

  EmulatedDevice device_{nullptr};
};

TEST_F(EmulatedDeviceTest, IsACudaDeviceThatCountsItsMemory) {
  EXPECT_EQ(device_.kind(), DeviceKind::kCuda);
  EXPECT_EQ(device_.executor().kind, DeviceKind::kCuda);
  const Tensor x = Empty(10);
  EXPECT_EQ(device_.memory().current_total(), 40);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.raw()) % 256, 0u);
  EXPECT_NE(device_.scratch(), nullptr);
}

TEST_F(EmulatedDeviceTest, FreshMemoryIsNaN) {
  const Tensor x = Empty(100);
  for (int64_t i = 0; i < x.numel(); ++i) EXPECT_TRUE(std::isnan(x.f32()[i])) << i;
}

TEST_F(EmulatedDeviceTest, CapturedWorkRunsWhenReplayed) {
  Tensor x = Empty(1);
  x.f32()[0] = 1.0f;
  const auto work = device_.Capture([&] {
    AddOne(x);
    AddOne(x);
  });
  EXPECT_EQ(First(x), 1.0f);
  work->Replay();
  EXPECT_EQ(First(x), 3.0f);
  work->Replay();
  EXPECT_EQ(First(x), 5.0f);
  AddOne(x);
  EXPECT_EQ(First(x), 6.0f);
}

TEST_F(EmulatedDeviceTest, WhatCapturedWorkFreesStaysReserved) {
  Tensor result = Empty(1);
  result.f32()[0] = 0.0f;
  std::unique_ptr<CapturedWork> work;
  work = device_.Capture([&] {
    const Tensor inner = Empty(1 << 20);
    float* from = inner.f32();
    float* to = result.f32();
    emulation::Submit(device_.stream(), [=] {
      *from = 7.0f;
      *to += *from;
    });
  });
  EXPECT_EQ(device_.memory().current_total(), 4);
  const Tensor other = Empty(1 << 20);  // must not land on the memory of `inner`
  work->Replay();
  EXPECT_EQ(First(result), 7.0f);
  EXPECT_TRUE(std::isnan(First(other)));
}

TEST_F(EmulatedDeviceTest, AnErrorEndsTheCapture) {
  Tensor x = Empty(1);
  x.f32()[0] = 0.0f;
  EXPECT_THROW(device_.Capture([] { throw std::runtime_error("stop"); }), std::runtime_error);
  AddOne(x);
  EXPECT_EQ(First(x), 1.0f);
}

using EmulatedDeviceDeathTest = EmulatedDeviceTest;

TEST_F(EmulatedDeviceDeathTest, CapturedWorkMustNotTouchTheHost) {
  EXPECT_DEATH(device_.Capture([&] { device_.Synchronize(); }), "while capturing");
  const Tensor x = Empty(1);
  EXPECT_DEATH(device_.Capture([&] { First(x); }), "a copy to the host while capturing");
}

TEST_F(EmulatedDeviceDeathTest, AWriteBesideAnAllocationIsFound) {
  EXPECT_DEATH(
      {
        const Tensor x = Empty(3);
        x.f32()[3] = 0.0f;
      },
      "outside an allocation of 12 bytes");
  EXPECT_DEATH(
      {
        const Tensor x = Empty(3);
        x.f32()[-1] = 0.0f;
      },
      "outside an allocation of 12 bytes");
}

}  // namespace
}  // namespace trimtab
