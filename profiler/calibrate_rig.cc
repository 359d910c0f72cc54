#include "profiler/calibrate_rig.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "engine/ops/elementwise.h"
#include "profiler/stats.h"

namespace trimtab {
namespace {

constexpr double kMostCalls = 2000;  // of one window

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void FillForTiming(Tensor& tensor) { Fill(tensor, 0.01f); }

ColdPool::ColdPool(Device& device)
    : device_(device),
      buffer_(Tensor::Empty(device, {kBytes / SizeOf(DType::kF32)}, DType::kF32,
                            MemoryTag::kWorkspace)) {
  FillForTiming(buffer_);
}

double Rig::Seconds(const std::function<void()>& work) {
  context_.world->Barrier();
  const double start = Now();
  work();
  work();  // the second call finds code and pages in place
  // The slowest rank's view decides for all how many calls fill a window.
  Tensor longest = Fresh({1});
  float once = static_cast<float>((Now() - start) / 2);
  CopyFromHost(longest, std::span<const float>(&once, 1));
  context_.world->AllReduce(longest, ReduceOp::kMax);
  CopyToHost(longest, std::span<float>(&once, 1));
  const double wanted = options_.window_s / std::max(static_cast<double>(once), 1e-7);
  const int calls = static_cast<int>(std::clamp(std::ceil(wanted), 1.0, kMostCalls));

  std::vector<double> samples;
  for (int repeat = 0; repeat < options_.repeats; ++repeat) {
    context_.world->Barrier();
    const double begin = Now();
    for (int call = 0; call < calls; ++call) work();
    context_.world->Barrier();
    samples.push_back((Now() - begin) / calls);
  }
  return Median(std::move(samples));
}

Tensor ColdPool::Next(const Shape& shape) {
  const int64_t numel = shape.numel();
  if (numel > buffer_.numel()) {
    if (!oversize_.defined() || oversize_.numel() < numel) {
      oversize_ = Tensor::Empty(device_, {numel}, DType::kF32, MemoryTag::kWorkspace);
      FillForTiming(oversize_);
    }
    return oversize_.Slice(0, shape);
  }
  if (next_ + numel > buffer_.numel()) next_ = 0;
  const Tensor part = buffer_.Slice(next_, shape);
  next_ += numel;
  return part;
}

}  // namespace trimtab
