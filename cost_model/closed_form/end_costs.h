// What the end of a step costs: gradients reduced, weights updated and gathered.
#pragma once

#include <cstdint>

#include "cost_model/prices/price.h"
#include "cost_model/recordings/piece_cost.h"
#include "cost_model/recordings/recording.h"
#include "engine/config/layout/parallel_config.h"

namespace trimtab {

/// The end of a step on one rank of a stage, and what stays in memory between steps.
struct EndCosts {
  PieceCost update;       // reduction of gradients first, as if none had been sent before
  double hideable_s = 0;  // of that: what may run beside the backward passes before it
  // Messages under way at its end, which the next step's first forward passes wait for:
  double next_first_s = 0;  // what they need at once
  double next_rest_s = 0;   // and what they need in time
  BytesByTag held{};

  int64_t held_as(MemoryTag tag) const { return held[static_cast<size_t>(tag)]; }
};

/// Prices a recording of a run in `layout`.
EndCosts EndOf(const UpdateRecording& recording, const ParallelConfig& layout,
               const Pricer& pricer);

}  // namespace trimtab
