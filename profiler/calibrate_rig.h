// The rig that calibration times with: one rank of a mode, in step with all the others.
#pragma once

#include <functional>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/device/tensor.h"

namespace trimtab {

/// How thoroughly to measure.
struct RigOptions {
  int repeats = 5;          // timed windows; the median counts
  double window_s = 0.004;  // least length of a window
};

/// A buffer far larger than the caches of a core, handed out part by part: what is touched in it
/// has not been touched recently.
class ColdPool {
 public:
  static constexpr int64_t kBytes = int64_t{48} << 20;

  explicit ColdPool(Device& device);

  /// The next part. Shapes larger than the pool get a tensor of their own, kept for the next such
  /// request.
  Tensor Next(const Shape& shape);

 private:
  Device& device_;
  Tensor buffer_;
  Tensor oversize_;
  int64_t next_ = 0;  // where the next part begins
};

/// When each rank of a mode began and ended a window, for all ranks to see.
struct RigClock {
  explicit RigClock(size_t ranks) : begin_s(ranks), end_s(ranks) {}
  std::vector<double> begin_s;
  std::vector<double> end_s;
};

/// One rank. Every rank of the mode makes the same calls in the same order.
class Rig {
 public:
  /// `clock` is shared by all ranks of the mode.
  Rig(const RigOptions& options, ParallelContext& context, Device& device, RigClock& clock)
      : options_(options),
        context_(context),
        device_(device),
        clock_(clock),
        inputs_(device),
        outputs_(device) {}

  Device& device() { return device_; }
  ParallelContext& context() { return context_; }

  /// Median seconds of `work` while every rank does it over and over: from when the first rank
  /// begins to when the last one ends.
  double Seconds(const std::function<void()>& work);

  /// A tensor the size of an activation or a gradient, freshly allocated as the engine does.
  Tensor Fresh(const Shape& shape) {
    return Tensor::Empty(device_, shape, DType::kF32, MemoryTag::kWorkspace);
  }
  /// Memory that is not in the caches: to read, always small numbers; and to add to or update.
  Tensor ColdInput(const Shape& shape) { return inputs_.Next(shape); }
  Tensor ColdOutput(const Shape& shape) { return outputs_.Next(shape); }

 private:
  /// Seconds of one window of `calls` calls.
  double Window(const std::function<void()>& work, int calls);

  RigOptions options_;
  ParallelContext& context_;
  Device& device_;
  RigClock& clock_;
  ColdPool inputs_;
  ColdPool outputs_;  // apart, so that sums which grow never become inputs
};

/// Fills `tensor` with small numbers, so that no op meets infinities or denormals.
void FillForTiming(Tensor& tensor);

}  // namespace trimtab
