// Process groups: which ranks of the grid talk to one another, as a table.
//
// The ranks stand in two grids (Megatron-Core's order tp-cp-ep-dp-pp): tp x cp x dp x pp, in which
// all but experts is laid out, and etp x ep x edp x pp, for experts. Rank numbers run along the
// first axis first, so that a tensor-parallel group is a run of neighbouring ranks; the ranks of a
// pipeline stage are the same in both. A group spans axes of one grid that stand side by side: its
// ranks differ there and nowhere else, and so are equally far apart in the world. It is all of
// those ranks, or a part of them. In the group they are numbered in the order of their ranks in the
// world.
#pragma once

#include <array>
#include <vector>

#include "engine/config/layout/parallel_config.h"
#include "engine/device/record.h"

namespace trimtab {

/// Where a rank stands on each axis.
struct RankPlace {
  int tp = 0;
  int cp = 0;
  int dp = 0;
  int pp = 0;

  bool operator==(const RankPlace&) const = default;
};

/// Where it stands on the axes of the experts' grid, beside pp.
struct ExpertPlace {
  int etp = 0;
  int ep = 0;
  int edp = 0;

  bool operator==(const ExpertPlace&) const = default;
};

enum class ParallelGrid { kDense, kExperts };
/// Axes of a grid, as bits.
enum Axis : unsigned { kTpAxis = 1, kCpAxis = 2, kDpAxis = 4, kPpAxis = 8 };
enum ExpertAxis : unsigned { kEtpAxis = 1, kEpAxis = 2, kEdpAxis = 4 };

/// Which of the ranks along its axes make a group. Those that do not take part are groups of one.
enum class GroupPart {
  kAll,
  kEnds,        // the first and the last
  kNeighbours,  // runs of them, as layout.shard or the copies of key/value heads say; no groups
                // where that is 0, or all of them
  kAcross,      // one of each such run
};

struct ProcessGroup {
  GroupKind kind{};
  unsigned axes = 0;
  GroupPart part = GroupPart::kAll;
  ParallelGrid grid = ParallelGrid::kDense;
};

/// Every group a rank is in.
inline constexpr std::array<ProcessGroup, kGroupKindCount> kProcessGroups = {{
    {GroupKind::kWorld, kTpAxis | kCpAxis | kDpAxis | kPpAxis},
    {GroupKind::kTensor, kTpAxis},
    // Ranks that hold the same key/value heads, where there are fewer heads than ranks.
    {GroupKind::kKeyValue, kTpAxis, GroupPart::kNeighbours},
    {GroupKind::kContext, kCpAxis},
    // Ranks with the same shard of the weights: gradients are summed over it.
    {GroupKind::kData, kCpAxis | kDpAxis},
    {GroupKind::kPipeline, kPpAxis},
    // The two stages that share a tied embedding.
    {GroupKind::kEmbedding, kPpAxis, GroupPart::kEnds},
    // Hybrid sharding: ranks that share one sharded replica, and those with the same part of it.
    {GroupKind::kShard, kCpAxis | kDpAxis, GroupPart::kNeighbours},
    {GroupKind::kReplica, kCpAxis | kDpAxis, GroupPart::kAcross},
    // Ranks with different experts, and those that share each of them.
    {GroupKind::kExpert, kEpAxis, GroupPart::kAll, ParallelGrid::kExperts},
    {GroupKind::kExpertTensor, kEtpAxis, GroupPart::kAll, ParallelGrid::kExperts},
    // Ranks that together have every expert once.
    {GroupKind::kExpertModel, kEtpAxis | kEpAxis, GroupPart::kAll, ParallelGrid::kExperts},
    // As kData, kShard and kReplica, of expert weights.
    {GroupKind::kExpertData, kEdpAxis, GroupPart::kAll, ParallelGrid::kExperts},
    {GroupKind::kExpertShard, kEdpAxis, GroupPart::kNeighbours, ParallelGrid::kExperts},
    {GroupKind::kExpertReplica, kEdpAxis, GroupPart::kAcross, ParallelGrid::kExperts},
}};

/// The layout's sizes must be at least 1, `rank` in its world, and what is sharded divided evenly.
RankPlace PlaceOf(const ParallelConfig& layout, int rank);
ExpertPlace ExpertPlaceOf(const ParallelConfig& layout, int rank);
/// Inverse of PlaceOf.
int RankAt(const ParallelConfig& layout, const RankPlace& place);

/// One rank's place in its group.
struct GroupPlace {
  int rank = 0;
  int size = 1;
  int stride = 1;  // between the group's first two ranks, in the world

  bool operator==(const GroupPlace&) const = default;
};
/// `kv_copies`: ranks that hold each key/value head of the model (ModelConfig::kv_copies).
GroupPlace PlaceInGroup(const ParallelConfig& layout, GroupKind group, int rank,
                        int64_t kv_copies = 1);

/// The world ranks of the group that `rank` is in, in ascending order.
std::vector<int> GroupMembers(const ParallelConfig& layout, GroupKind group, int rank,
                              int64_t kv_copies = 1);

}  // namespace trimtab
