#include "cost_model/finish.h"

#include <cmath>

#include "engine/base/error.h"
#include "engine/config/run_config.h"

namespace trimtab {
namespace {

// Half-widths of the interval of a cpu, relative. Calibrated: what layouts of small models were
// seen to differ by from their prediction. Without measurements it is right within a factor.
constexpr double kCalibratedHalfWidth = 0.25;
constexpr double kModelledHalfWidth = 1.0;
constexpr double kSpreadsOfHalfWidth = 2;  // standard errors of what the tables may be off by

double HalfWidthOf(const Cluster& cluster, const Pricer& pricer, bool calibrated) {
  // What the model is off by and what its tables are off by are independent of each other.
  if (calibrated) return std::hypot(kCalibratedHalfWidth, kSpreadsOfHalfWidth * pricer.spread());
  if (cluster.device == "cpu") return kModelledHalfWidth;
  const bool fitted = cluster.stack.compute.origin == Origin::kFitted;
  return fitted ? kFittedStackHalfWidth : kOtherStackHalfWidth;
}

/// Bytes of the fullest rank that a stack takes and our engine does not.
int64_t BytesBeyondOurs(const RunConfig& run, const SoftwareStack& stack,
                        const MemoryEstimate& memory) {
  const ParallelConfig& layout = run.layout;
  const int64_t tokens = layout.micro_batch * run.sequence_length / layout.cp;
  const int64_t logits = tokens * run.model.padded_vocab_size(layout.tp) / layout.tp;
  const double kept = (stack.activations.value - 1) * static_cast<double>(memory.activations);
  return static_cast<int64_t>(kept + stack.logit_bytes.value * static_cast<double>(logits) +
                              stack.memory_bytes.value);
}

}  // namespace

void FinishEstimate(const RunConfig& run, const Cluster& cluster, const Pricer& pricer,
                    Estimate& estimate) {
  Breakdown& parts = estimate.breakdown_s;
  parts.overhead = 0;
  if (pricer.step_factor() > 1) {
    parts.overhead = (pricer.step_factor() - 1) * parts.total();
  } else {
    // Steps went faster than their ops one by one: no part is at fault more than another.
    Scale(parts, pricer.step_factor());
  }
  parts.overhead += pricer.step_s();
  estimate.step_time_s = parts.total();
  const bool calibrated = pricer.calibrated() && cluster.calibrated;
  estimate.trust = calibrated ? Trust::kCalibrated : Trust::kModelled;
  SetInterval(estimate, HalfWidthOf(cluster, pricer, calibrated));
  estimate.memory.peak_total += BytesBeyondOurs(run, cluster.stack, estimate.memory);
  estimate.model_flops = ModelFlops(run);
  estimate.tokens = run.global_batch * run.sequence_length;
  estimate.ranks = run.layout.world_size();
  estimate.peak_flops_per_rank = pricer.peak_flops();
}

}  // namespace trimtab
