// ParallelContext: where one rank stands in the layout, and its groups (process_groups.h).
#pragma once

#include <functional>
#include <memory>

#include "engine/comm/communicator.h"
#include "engine/comm/process_groups.h"
#include "engine/config/layout/parallel_config.h"

namespace trimtab {

struct ParallelContext {
  ParallelConfig layout;
  int rank = 0;  // in the world
  // On the axes of the grid. The rank in a group is its communicator's: dp spans cp as well.
  int tp_rank = 0;
  int cp_rank = 0;
  int dp_rank = 0;
  int pp_rank = 0;
  // On those of the experts' grid.
  int etp_rank = 0;
  int ep_rank = 0;
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> tp;
  std::unique_ptr<Communicator> kv;
  std::unique_ptr<Communicator> cp;
  std::unique_ptr<Communicator> dp;
  std::unique_ptr<Communicator> pp;
  std::unique_ptr<Communicator> embedding;
  std::unique_ptr<Communicator> shard;
  std::unique_ptr<Communicator> replica;
  std::unique_ptr<Communicator> ep;
  std::unique_ptr<Communicator> etp;
  std::unique_ptr<Communicator> etp_ep;
  std::unique_ptr<Communicator> edp;
  std::unique_ptr<Communicator> expert_shard;
  std::unique_ptr<Communicator> expert_replica;
  /// All ranks, over tensors in host memory whatever the rank's device. Null on meta.
  std::unique_ptr<Communicator> host;

  std::unique_ptr<Communicator>& group(GroupKind kind);
};

/// The context of `rank` without its communicators.
ParallelContext PlaceRank(const ParallelConfig& layout, int rank);

/// The same with what `make` returns for every row of kProcessGroups, in their order, where
/// `kv_copies` ranks hold each key/value head (ModelConfig::kv_copies). `host` is left to the
/// caller.
ParallelContext MakeContext(
    const ParallelConfig& layout, int rank, int64_t kv_copies,
    const std::function<std::unique_ptr<Communicator>(GroupKind, const GroupPlace&)>& make);

/// The context of rank `rank` with meta communicators.
ParallelContext MakeMetaContext(const ParallelConfig& layout, int rank, int64_t kv_copies = 1);

/// Runs `body` once per rank, each on its own thread with in-process communicators. When a rank
/// throws, every group is aborted, all threads are joined, and the first rank's own exception (not
/// the CommErrors it caused) is rethrown.
void RunInprocRanks(const ParallelConfig& layout,
                    const std::function<void(ParallelContext& context)>& body,
                    int64_t kv_copies = 1);

}  // namespace trimtab
