// Probe: how fast the machine is right now.
//
// Machines wander: clocks throttle, hosts are shared, networks are busy. A fixed piece of work,
// done by every rank of a run together, is timed beside the steps, so that what the machine did to
// the steps can be told from what the layout did.
#pragma once

#include <limits>

#include "engine/device/tensor.h"
#include "engine/runtime/ranks.h"

namespace trimtab {

/// One rank's part of the probe: a matrix product, a pass over memory and a message among all
/// ranks. A round of it takes a few milliseconds. Its memory is not the run's and is not counted.
class Probe {
 public:
  explicit Probe(Rank& rank);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  /// Seconds of one round of the work, from all ranks ready to all ranks done: the mean over as
  /// many rounds as take about kReadingSeconds, so that time slices of competing work average out.
  /// Every rank calls it together; the clock is the rank's own.
  double Seconds();

  /// Seconds of this rank's own product and pass in a round, without the message and without
  /// waiting for others: of all readings since the last call the least. Every rank's are alike,
  /// whatever the layout gives it to do.
  double TakeOwnSeconds();

  static constexpr double kReadingSeconds = 0.03;

 private:
  /// Seconds of one round, over `rounds` of them.
  double Rounds(int64_t rounds);

  Rank& rank_;
  int64_t rounds_ = 1;  // of one reading, the same on every rank
  double own_s_ = 0;    // of the reading at hand, per round
  double least_own_s_ = std::numeric_limits<double>::infinity();
  Tensor a_;        // [n, n]
  Tensor b_;        // [n, n]
  Tensor c_;        // [n, n]
  Tensor source_;   // larger than a core's own caches
  Tensor target_;   // of the same size
  Tensor message_;  // summed over all ranks
};

}  // namespace trimtab
