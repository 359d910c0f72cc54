// Drift: what a machine whose speed wanders says about the time of an op at one speed.
//
// Pure arithmetic over readings: every timing has the seconds of the reference probe (probe.h)
// around it, and everything is timed again in several passes.
#pragma once

#include <vector>

namespace trimtab {

/// One timing, and how fast the machine was around it.
struct Reading {
  double seconds = 0;      // > 0
  double probe_s = 0;      // of one probe round around it, > 0
  int piece = 0;           // readings of a pass with the same piece share their probe reading
  bool disturbed = false;  // other programs took cores meanwhile (other_work.h)
};
/// What one pass read: one reading of each cell of a table, the same cells in every pass.
using Pass = std::vector<Reading>;

/// Adds readings to a pass. Pieces of the one stay apart from those of the other.
void Append(const Pass& more, Pass& pass);

/// A standard error of the median of `values` that a few wild ones do not move: from their median
/// absolute deviation. 0 for fewer than two.
double StandardErrorOfMedian(const std::vector<double>& values);

/// How much slower work becomes when the probe becomes slower: the slope of log seconds over log
/// probe seconds, between 0 (the probe says nothing about it, or is all noise) and 1.2. A weighted
/// median of the slopes between any two pieces, so a disturbed one moves nothing.
double DriftSlope(const std::vector<Pass>& passes);

/// A table at one speed of the machine.
struct CombinedTable {
  std::vector<double> seconds;  // of each cell
  double spread = 0;            // how far off a typical cell may be: a relative standard error
};

/// Median over `passes` of each cell's seconds, without the disturbed ones where two others are
/// left, each first taken to the speed at which the probe takes `reference_probe_s`, as far as
/// DriftSlope says that helps: of the table itself, or of the `whole` mode where the table has too
/// few pieces for a slope of its own, which would fit their noise and hide it from the spread.
/// There is at least one pass.
CombinedTable CombinePasses(const std::vector<Pass>& passes, const std::vector<Pass>& whole,
                            double reference_probe_s);

/// The probe's seconds at the speed that a profile stands for.
struct ProbeReference {
  double probe_s = 0;  // at the speed of the calibration; 0 = not calibrated
  double spread = 0;   // of its ratio to the other modes': a relative standard error
};

/// What the probe took in one mode during one pass, or in a part of it.
struct ProbeReading {
  double seconds = 0;
  bool disturbed = false;  // all through
};
/// The median of `readings`, without the disturbed ones where most are not. There is at least one.
ProbeReading TypicalProbe(const std::vector<ProbeReading>& readings);

/// One reference for each mode, from `probes[pass][mode]`. Modes are compared only within a pass,
/// and each pair by the median over passes, so a slow minute in one mode favours no other; passes
/// that were disturbed in either count only where no two others are left. Together they stand for
/// the median speed. There is at least one pass and one mode.
std::vector<ProbeReference> ReferenceProbes(const std::vector<std::vector<ProbeReading>>& probes);

}  // namespace trimtab
