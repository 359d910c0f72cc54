// The last step of both tiers: from the priced parts of a step to a whole estimate.
#pragma once

#include <cstdint>

#include "cost_model/estimate.h"
#include "cost_model/hardware/cluster.h"
#include "cost_model/prices/price.h"

namespace trimtab {

/// What a prediction for GPUs rests on.
enum class Evidence : uint8_t {
  kFitted,   // published runs of the stack and of the generation of GPUs
  kPartly,   // those of one of the two; the other is left to what is usual
  kNoStack,  // the software is one that nobody knows
};
/// Half-width of the interval of a prediction for GPUs, relative: what about four fifths of the
/// published runs of the kind differ by less than when they are held out (README.md).
double GpuHalfWidth(const RunConfig& run, const Breakdown& parts, Evidence evidence);

/// What a step takes whose parts add up to `parts_s`.
double StepSeconds(const Pricer& pricer, double parts_s);

/// Bytes of the fullest rank that a stack takes and our engine does not.
int64_t BytesBeyondOurs(const RunConfig& run, const SoftwareStack& stack,
                        const MemoryEstimate& memory);

/// Fills what follows from the run and the breakdown's parts: overhead, step time and interval,
/// trust, model FLOPs, tokens, ranks, peak rate.
void FinishEstimate(const RunConfig& run, const Cluster& cluster, const Pricer& pricer,
                    Estimate& estimate);

}  // namespace trimtab
