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

double Rig::Window(const std::function<void()>& work, int calls) {
  const auto rank = static_cast<size_t>(context_.rank);
  context_.world->Barrier();
  // Ranks beyond the cores leave a barrier one after the other, so no rank's own clock will do.
  clock_.begin_s[rank] = Now();
  for (int call = 0; call < calls; ++call) work();
  clock_.end_s[rank] = Now();
  context_.world->Barrier();
  return *std::max_element(clock_.end_s.begin(), clock_.end_s.end()) -
         *std::min_element(clock_.begin_s.begin(), clock_.begin_s.end());
}

double Rig::Seconds(const std::function<void()>& work) {
  Window(work, 1);  // finds code and pages in place for the next
  const double once_s = Window(work, 1);
  const double wanted = options_.window_s / std::max(once_s, 1e-7);
  const int calls = static_cast<int>(std::clamp(std::ceil(wanted), 1.0, kMostCalls));
  std::vector<double> samples;
  for (int repeat = 0; repeat < options_.repeats; ++repeat) {
    samples.push_back(Window(work, calls) / calls);
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
