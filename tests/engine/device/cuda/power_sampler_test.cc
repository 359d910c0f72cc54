// Readings of power and clocks, from a library that imitates NVML.
#include "engine/device/cuda/power_sampler.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace trimtab {
namespace {

constexpr char kFake[] = "tests/engine/device/cuda/libfake_nvml.so";
constexpr char kGpu[] = "0000:3b:00.0";

TEST(PowerSampler, GivesMeanAndRangeOfWhatItSaw) {
  const PowerSampler::Opened opened = PowerSampler::Open(kGpu, kFake);
  ASSERT_NE(opened.sampler, nullptr) << opened.reason;
  opened.sampler->Start();
  std::this_thread::sleep_for(std::chrono::milliseconds(350));
  const PowerReading reading = opened.sampler->Stop();
  EXPECT_GE(reading.samples, 3);  // more on a machine that is not busy
  EXPECT_LE(reading.samples, 5);
  EXPECT_GE(reading.seconds, 0.35);
  EXPECT_DOUBLE_EQ(reading.power_w.min, 400);
  EXPECT_DOUBLE_EQ(reading.power_w.max, 600);
  EXPECT_GE(reading.power_w.mean, 460);
  EXPECT_LE(reading.power_w.mean, 540);
  EXPECT_DOUBLE_EQ(reading.sm_clock_mhz.max - reading.sm_clock_mhz.min,
                   static_cast<double>(reading.samples - 1));
  EXPECT_DOUBLE_EQ(reading.temperature_c.mean, 61);
  EXPECT_DOUBLE_EQ(reading.energy_j, 42);
}

TEST(PowerSampler, StartsAgainAfterAStop) {
  const PowerSampler::Opened opened = PowerSampler::Open(kGpu, kFake);
  ASSERT_NE(opened.sampler, nullptr) << opened.reason;
  for (int i = 0; i < 2; ++i) {
    opened.sampler->Start();
    const PowerReading reading = opened.sampler->Stop();
    EXPECT_EQ(reading.samples, 2);  // one at each end
    EXPECT_DOUBLE_EQ(reading.energy_j, 42);
  }
  opened.sampler->Start();  // and ends by itself
}

TEST(PowerSampler, SaysInOneLineWhyThereIsNone) {
  const PowerSampler::Opened missing = PowerSampler::Open(kGpu, "/nonexistent/libnvidia-ml.so.1");
  EXPECT_EQ(missing.sampler, nullptr);
  EXPECT_EQ(missing.reason.find("no NVML: /nonexistent/libnvidia-ml.so.1"), 0u) << missing.reason;
  const PowerSampler::Opened other_gpu = PowerSampler::Open("0000:99:00.0", kFake);
  EXPECT_EQ(other_gpu.sampler, nullptr);
  EXPECT_EQ(other_gpu.reason, "nvmlDeviceGetHandleByPciBusId_v2: Not Found");
  const PowerSampler::Opened not_nvml = PowerSampler::Open(kGpu, "libm.so.6");
  EXPECT_EQ(not_nvml.reason, "NVML has no nvmlInit_v2");
}

TEST(PowerReading, ReadsAsOneLine) {
  const PowerReading reading{.samples = 10,
                             .seconds = 1,
                             .power_w = {512, 498, 530},
                             .sm_clock_mhz = {1755, 1740, 1770},
                             .temperature_c = {60, 59, 61},
                             .energy_j = 512};
  EXPECT_EQ(reading.ToString(), "512 W (498-530), 1755 MHz (1740-1770), 61 C, 512 J");
}

}  // namespace
}  // namespace trimtab
