// CapturedSteps: the parts of a training step, run as captured graphs where that is possible.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "engine/comm/parallel_context.h"
#include "engine/device/device.h"

namespace trimtab {

/// Messages that some ranks replay and others submit need not fit, so whether a step is captured is
/// agreed on by all ranks, and all go on without graphs where one of them cannot make one. Every
/// rank makes the same calls in the same order.
class CapturedSteps {
 public:
  /// Both must outlive this.
  CapturedSteps(const ParallelContext& parallel, Device& device)
      : parallel_(parallel), device_(device) {}

  /// `possible`: the run allows captures, which is the same on all ranks. `wanted`: so does what
  /// listens on this one. `agreed`: `wanted` of all ranks, where the caller has exchanged it;
  /// otherwise they are asked here.
  void BeginStep(bool possible, bool wanted, std::optional<bool> agreed = std::nullopt);

  /// Runs `work`; in a captured step as the graph of part `part`, captured where there is none yet.
  /// Memory that graphs need and the device lacks is no failure: all ranks then go on without.
  void Run(int part, const std::function<void()>& work);

 private:
  /// Whether it is true on every rank.
  bool TrueOnAll(bool value) const;

  const ParallelContext& parallel_;
  Device& device_;
  bool capturing_ = false;  // this step
  bool given_up_ = false;
  std::map<int, std::unique_ptr<CapturedWork>> graphs_;
};

}  // namespace trimtab
