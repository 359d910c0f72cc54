// ParallelContext: where one rank stands in the layout, and its groups.
//
// Rank order is tp fastest, then dp (Megatron-Core's order tp-cp-ep-dp-pp), so that a
// tensor-parallel group is a run of neighbouring ranks.
#pragma once

#include <functional>
#include <memory>

#include "engine/comm/communicator.h"
#include "engine/config/parallel_config.h"

namespace trimtab {

struct ParallelContext {
  ParallelConfig layout;
  int rank = 0;     // in the world
  int tp_rank = 0;  // rank % tp
  int dp_rank = 0;  // rank / tp
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> tp;
  std::unique_ptr<Communicator> dp;
  /// All ranks, over tensors in host memory whatever the rank's device. Null on meta.
  std::unique_ptr<Communicator> host;
};

/// The context of `rank` without its communicators. The layout must be one the engine can run.
ParallelContext PlaceRank(const ParallelConfig& layout, int rank);

/// The context of rank `rank` with meta communicators.
ParallelContext MakeMetaContext(const ParallelConfig& layout, int rank);

/// Runs `body` once per rank, each on its own thread with in-process communicators. When a rank
/// throws, every group is aborted, all threads are joined, and the first rank's own exception (not
/// the CommErrors it caused) is rethrown.
void RunInprocRanks(const ParallelConfig& layout,
                    const std::function<void(ParallelContext& context)>& body);

}  // namespace trimtab
