// The rig that calibration times with: one rank of a mode, in step with all the others.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/device/tensor.h"
#include "engine/runtime/ranks.h"
#include "profiler/drift.h"
#include "profiler/other_work.h"
#include "profiler/probe.h"

namespace trimtab {

/// A buffer far larger than the caches of a core, handed out part by part: what is touched in it
/// has not been touched recently.
class ColdPool {
 public:
  static constexpr int64_t kBytes = int64_t{48} << 20;

  explicit ColdPool(Device& device) : device_(device) {}

  /// The next part. Shapes larger than the pool get a tensor of their own, kept for the next such
  /// request.
  Tensor Next(const Shape& shape);

 private:
  Device& device_;
  Tensor buffer_;  // made when it is first asked for
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
  /// Times work in windows of at least `window_s`. `clock` is shared by all ranks of the mode.
  Rig(double window_s, Rank& rank, RigClock& clock);
  /// Times nothing: answers each call with the first of `answers` and takes it away, so that
  /// whoever fills a table from timings fills it from what several passes came to. Needs no other
  /// rank.
  Rig(std::span<const double>& answers, Rank& rank);

  Device& device() { return rank_.device(); }
  ParallelContext& context() { return rank_.parallel(); }

  /// Seconds of `work` while every rank does it over and over: from when the first rank begins to
  /// when the last one ends. One window, after a call that finds code and pages cold.
  double Seconds(const std::function<void()>& work);
  /// Seconds of each of `calls` calls of `work`, in one window. Nothing is run before it.
  double SecondsOfCalls(const std::function<void()>& work, int calls);

  /// Every timing since the last time of asking, with the speed of the machine around it. Between
  /// the timings of one piece of work and the next, about a fifth of a second, the probe is read.
  Pass TakeReadings();

  /// A tensor the size of an activation or a gradient, freshly allocated as the engine does.
  Tensor Fresh(const Shape& shape) {
    return Tensor::Empty(device(), shape, DType::kF32, MemoryTag::kWorkspace);
  }
  /// Memory that is not in the caches: to read, always small numbers; and to add to or update.
  Tensor ColdInput(const Shape& shape) { return inputs_.Next(shape); }
  Tensor ColdOutput(const Shape& shape) { return outputs_.Next(shape); }

 private:
  double NextAnswer();
  /// Seconds of one window of `calls` calls, the same on every rank.
  double Window(const std::function<void()>& work, int calls);
  void AddReading(double seconds);
  /// Reads the probe after the open piece, and gives its readings the speed on both sides of it,
  /// and whether other work disturbed them.
  void ClosePiece();

  double window_s_ = 0;
  Rank& rank_;
  RigClock* clock_ = nullptr;                   // shared by all ranks
  std::span<const double>* answers_ = nullptr;  // instead of a clock
  std::unique_ptr<Probe> probe_;
  double probe_before_s_ = 0;
  std::optional<OtherWork> other_work_;  // on the rank whose readings count
  Pass readings_;
  size_t closed_ = 0;   // of the readings
  int piece_ = 0;       // number of the open piece
  double piece_s_ = 0;  // windows of the open piece, together
  ColdPool inputs_;
  ColdPool outputs_;  // apart, so that sums which grow never become inputs
};

/// Fills `tensor` with small numbers, so that no op meets infinities or denormals.
void FillForTiming(Tensor& tensor);

}  // namespace trimtab
