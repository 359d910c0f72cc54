// Trains a run on in-process cpu ranks and returns what the ranks saw. For tests.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/train/trainer.h"

namespace trimtab {

/// Losses and gradient norms of `steps` optimizer steps, as rank 0 reports them. Asserts that all
/// ranks agree bit for bit.
struct TrainedLosses {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  std::vector<int64_t> peak_bytes;  // allocator peak of each rank
};
TrainedLosses TrainOnRanks(const RunConfig& run, const TokenSource& source, int64_t steps);

/// A small legal run to vary: GPT-2 or Llama family, 4 heads, 61 ids, T 12, global batch 8.
RunConfig SmallRun(bool llama);

}  // namespace trimtab
