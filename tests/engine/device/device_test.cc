#include "engine/device/device.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

TEST(CpuDeviceTest, GivesAlignedMemoryAndCountsExactlyTheBytesAskedFor) {
  const auto device = MakeCpuDevice(1);
  for (const int64_t bytes : {int64_t{1}, int64_t{63}, int64_t{4096}, 5 * kMiB + 1}) {
    const auto storage = device->Allocate(bytes, MemoryTag::kActivations);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(storage->data()) % 64, 0U);
    EXPECT_EQ(device->memory().current_total(), bytes);
    std::memset(storage->data(), 1, static_cast<size_t>(bytes));
  }
  EXPECT_EQ(device->memory().current_total(), 0);
  EXPECT_EQ(device->memory().peak_total(), 5 * kMiB + 1);
}

TEST(CpuDeviceTest, AllocatesNothingWithoutFuss) {
  const auto device = MakeCpuDevice(1);
  const auto storage = device->Allocate(0, MemoryTag::kWorkspace);
  EXPECT_EQ(device->memory().current_total(), 0);
}

TEST(CpuDeviceTest, CopiesBothWays) {
  const auto device = MakeCpuDevice(2);
  const std::array<char, 5> sent = {'a', 'b', 'c', 'd', 'e'};
  std::array<char, 5> received = {};
  const auto storage = device->Allocate(5, MemoryTag::kWorkspace);
  device->CopyFromHost(storage->data(), sent.data(), 5);
  device->Synchronize();
  device->CopyToHost(received.data(), storage->data(), 5);
  EXPECT_EQ(sent, received);
  device->CopyToHost(nullptr, nullptr, 0);
}

TEST(CpuDeviceTest, KeepsTheMemoryOfAStepForTheNext) {
  constexpr int64_t kLarge = 50 * kMiB + 12345;
  constexpr int64_t kEnd = kLarge - 1;
  const auto device = MakeCpuDevice(1);
  const auto bytes_of = [](const std::shared_ptr<Storage>& storage) {
    return static_cast<char*>(storage->data());
  };
  auto large = device->Allocate(kLarge, MemoryTag::kActivations);
  void* const first = large->data();
  bytes_of(large)[kEnd] = 7;
  large.reset();
  // Other sizes, which come of the same memory, are no reason to return it.
  for (const int64_t size : {3 * kMiB, 700 * kKiB, 5 * kMiB}) {
    const auto some = device->Allocate(size, MemoryTag::kWorkspace);
    const auto more = device->Allocate(size, MemoryTag::kWorkspace);
    EXPECT_NE(some->data(), more->data());
  }
  large = device->Allocate(kLarge, MemoryTag::kActivations);
  EXPECT_EQ(large->data(), first);
  EXPECT_EQ(bytes_of(large)[kEnd], 7);  // fresh pages are zero
}

TEST(CpuDeviceTest, ReturnsMemoryThatStepsDoNotNeed) {
  const auto device = MakeCpuDevice(1);
  {
    const MemoryTracker::Uncounted uncounted(device->memory());
    const auto storage = device->Allocate(512 * kMiB, MemoryTag::kWorkspace);
    static_cast<char*>(storage->data())[0] = 7;
  }
  const auto storage = device->Allocate(512 * kMiB, MemoryTag::kWorkspace);
  EXPECT_EQ(static_cast<char*>(storage->data())[0], 0);
}

TEST(CpuDeviceTest, RefusesMoreThanTheMachineHasAndForgetsIt) {
  const auto device = MakeCpuDevice(1);
  EXPECT_THROW(device->Allocate(int64_t{1} << 60, MemoryTag::kWeights), OutOfMemoryError);
  EXPECT_EQ(device->memory().current_total(), 0);
}

TEST(CpuDeviceTest, HonoursTheLimitOfTheRank) {
  const auto device = MakeCpuDevice(1);
  device->memory().set_limit_bytes(1000);
  const auto storage = device->Allocate(600, MemoryTag::kWeights);
  EXPECT_THROW(device->Allocate(401, MemoryTag::kWeights), OutOfMemoryError);
  EXPECT_EQ(device->memory().current_total(), 600);
}

TEST(MetaDeviceTest, CountsWithoutMemory) {
  const auto device = MakeMetaDevice(4);
  EXPECT_EQ(device->kind(), DeviceKind::kMeta);
  EXPECT_EQ(device->threads(), 4);
  const auto storage = device->Allocate(int64_t{1} << 60, MemoryTag::kWeights);
  EXPECT_EQ(storage->data(), nullptr);
  EXPECT_EQ(device->memory().current_total(), int64_t{1} << 60);
  device->memory().set_limit_bytes(int64_t{1} << 60);
  EXPECT_THROW(device->Allocate(1, MemoryTag::kWeights), OutOfMemoryError);
}

TEST(MetaDeviceTest, ReadsBackZeros) {
  const auto device = MakeMetaDevice(1);
  const auto storage = device->Allocate(4, MemoryTag::kWorkspace);
  std::array<char, 4> host = {'x', 'x', 'x', 'x'};
  device->CopyFromHost(storage->data(), host.data(), 4);
  device->CopyToHost(host.data(), storage->data(), 4);
  EXPECT_EQ(host, (std::array<char, 4>{}));
}

TEST(DeviceTest, ARankNeedsAThread) {
  EXPECT_DEATH(MakeCpuDevice(0), "needs a thread, got 0");
  EXPECT_DEATH(MakeMetaDevice(0), "at least one thread, got 0");
}

}  // namespace
}  // namespace trimtab
