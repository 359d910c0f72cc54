// Quiet wait: puts a measurement off while other programs run on the cores that it needs.
#pragma once

#include <cstdint>
#include <functional>

namespace trimtab {

/// Waits as long as waiting has been of use: each wait in vain halves the patience for the next,
/// and each that ended in quiet doubles it. So a machine that is always shared costs little, and
/// one that is shared now and then is measured in between.
class QuietWait {
 public:
  /// Sleeps for `window_s` and returns the share of the cores that others ran on meanwhile, 0..1.
  using Sample = std::function<double(double window_s)>;

  /// Of this machine, for work on `cores` of its cores; on the others anyone may run.
  static QuietWait OnThisMachine(int64_t cores);
  explicit QuietWait(Sample sample) : sample_(std::move(sample)) {}

  /// Returns when it is quiet, when the patience is at its end, or when `stop` says so.
  void Wait(const std::function<bool()>& stop);

  double patience_s() const { return patience_s_; }

  static constexpr double kMostPatienceSeconds = 12;
  static constexpr double kLeastPatienceSeconds = 0.5;
  static constexpr double kWindowSeconds = 0.25;

 private:
  Sample sample_;
  double patience_s_ = kMostPatienceSeconds;
};

}  // namespace trimtab
