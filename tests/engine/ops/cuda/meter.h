// Timing of device work, for benchmarks.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/device/device.h"

namespace trimtab {

/// Median seconds of one `run`. On a device that captures, many runs are captured and replayed, so
/// that the host's part does not count; elsewhere each is timed by itself.
inline double MedianSeconds(Device& device, const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  constexpr double kReplay = 0.02;  // seconds; what a wait costs disappears in it
  constexpr int64_t kMostRuns = 500;
  constexpr size_t kTimes = 7;
  const auto timed = [&](const std::function<void()>& work) {
    const auto start = Clock::now();
    work();
    device.Synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  timed(run);  // chooses algorithms, loads kernels
  int64_t runs = 1;
  std::function<void()> work = run;
  std::unique_ptr<CapturedWork> captured;
  if (device.CanCapture()) {
    runs = std::clamp(static_cast<int64_t>(kReplay / timed(run)), int64_t{1}, kMostRuns);
    captured = device.Capture([&] {
      for (int64_t i = 0; i < runs; ++i) run();
    });
    work = [&] { captured->Replay(); };
    timed(work);
  }
  std::vector<double> times;
  for (size_t i = 0; i < kTimes; ++i) times.push_back(timed(work) / static_cast<double>(runs));
  std::sort(times.begin(), times.end());
  return times[kTimes / 2];
}

/// What one `run` asked for, added up over its ops.
inline OpRecord CostOf(Device& device, const std::function<void()>& run) {
  class Adder final : public Recorder {
   public:
    void BeginOp(const OpRecord& op) override {
      sum.flops += op.flops;
      sum.bytes += op.bytes;
    }
    void BeginComm(const CommRecord&) override {}
    void BeginWait(const CommRecord&) override {}
    void End() override {}
    OpRecord sum;
  };
  Adder adder;
  Recorder* const before = device.recorder();
  device.set_recorder(&adder);
  run();
  device.set_recorder(before);
  return adder.sum;
}

}  // namespace trimtab
