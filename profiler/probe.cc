#include "profiler/probe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMostRounds = 1000;  // of one reading

/// The size of the work, for about a millisecond or two on a rank.
struct ProbeSize {
  int64_t product;  // rows and columns
  int64_t stream;   // elements copied
  int64_t message;  // elements summed
  DType dtype;
};

ProbeSize SizeFor(DeviceKind kind) {
  if (kind == DeviceKind::kCuda) {
    return {.product = 4096, .stream = 32 << 20, .message = 4 << 20, .dtype = DType::kBf16};
  }
  return {.product = 320, .stream = 1 << 20, .message = 32 << 10, .dtype = DType::kF32};
}

}  // namespace

Probe::Probe(Rank& rank) : rank_(rank) {
  Device& device = rank.device();
  const ProbeSize size = SizeFor(device.kind());
  const MemoryTracker::Uncounted uncounted(device.memory());
  const auto make = [&](const Shape& shape, float value) {
    Tensor tensor = Tensor::Empty(device, shape, size.dtype, MemoryTag::kWorkspace);
    Fill(tensor, value);
    return tensor;
  };
  a_ = make({size.product, size.product}, 0.01f);
  b_ = make({size.product, size.product}, 0.01f);
  c_ = make({size.product, size.product}, 0.0f);
  source_ = make({size.stream}, 0.01f);
  target_ = make({size.stream}, 0.0f);
  message_ = make({size.message}, 0.0f);  // zeros stay zeros however often they are added up
  Rounds(2);                              // finds code, pages and thread pools cold
  const double once_s = Rounds(2);
  rounds_ = rank.FromFirst(std::llround(std::clamp(kReadingSeconds / once_s, 1.0, kMostRounds)));
}

Probe::~Probe() {
  const MemoryTracker::Uncounted uncounted(rank_.device().memory());
  for (Tensor* tensor : {&a_, &b_, &c_, &source_, &target_, &message_}) *tensor = Tensor();
}

double Probe::Seconds() {
  const double seconds = Rounds(rounds_);
  least_own_s_ = std::min(least_own_s_, own_s_);
  return seconds;
}

double Probe::TakeOwnSeconds() {
  return std::exchange(least_own_s_, std::numeric_limits<double>::infinity());
}

double Probe::Rounds(int64_t rounds) {
  Device& device = rank_.device();
  const MemoryTracker::Uncounted uncounted(device.memory());
  device.Synchronize();
  rank_.Barrier();
  const Clock::time_point start = Clock::now();
  Clock::duration own{};
  for (int64_t round = 0; round < rounds; ++round) {
    const Clock::time_point ready = Clock::now();
    Gemm(a_, Transpose::kNo, b_, Transpose::kNo, c_);
    Copy(source_, target_);
    device.Synchronize();
    own += Clock::now() - ready;
    rank_.parallel().world->AllReduce(message_);
    device.Synchronize();
    rank_.Barrier();
  }
  const auto per_round = [rounds](const std::chrono::duration<double>& seconds) {
    return seconds.count() / static_cast<double>(rounds);
  };
  own_s_ = per_round(own);
  return per_round(Clock::now() - start);
}

}  // namespace trimtab
