// Properties of the process groups over random grids.
#include "engine/comm/process_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace trimtab {
namespace {

std::vector<ParallelConfig> RandomGrids() {
  std::vector<ParallelConfig> grids = {{}, {.pp = 2}, {.tp = 2, .cp = 3, .pp = 4, .dp = 5}};
  std::mt19937 random(7);
  std::uniform_int_distribution<int64_t> size(1, 4);
  while (grids.size() < 80) {
    ParallelConfig grid = {
        .tp = size(random), .cp = size(random), .pp = size(random), .dp = size(random)};
    grid.shard = size(random) - 1;
    grid.etp = size(random);
    grid.ep = size(random);
    if (grid.tp * grid.cp * grid.dp % (grid.etp * grid.ep) != 0) grid.etp = grid.ep = 1;
    const bool dense = grid.shard == 0 || grid.cp * grid.dp % grid.shard == 0;
    const int64_t shard = grid.expert_shard();
    if (dense && (shard == 0 || grid.edp() % shard == 0)) grids.push_back(grid);
  }
  return grids;
}

/// Whether those of `size` ranks that hold the same weights, numbers `a` and `b` of them, are in
/// one hybrid group.
bool InHybridGroup(GroupPart part, int64_t shard, int64_t size, int a, int b) {
  const auto run = static_cast<int>(shard);
  if (shard == 0 || shard == size) return a == b;
  return part == GroupPart::kNeighbours ? a / run == b / run : a % run == b % run;
}

bool IsHybrid(const ProcessGroup& group) {
  return group.part == GroupPart::kNeighbours || group.part == GroupPart::kAcross;
}

/// Together, of a group of the experts' grid.
bool ExpertsTogether(const ProcessGroup& group, const ParallelConfig& layout, int rank, int other) {
  if (PlaceOf(layout, rank).pp != PlaceOf(layout, other).pp) return false;
  const ExpertPlace a = ExpertPlaceOf(layout, rank);
  const ExpertPlace b = ExpertPlaceOf(layout, other);
  const auto same_unless = [&group](unsigned axis, int x, int y) {
    return (group.axes & axis) != 0 || x == y;
  };
  return same_unless(kEtpAxis, a.etp, b.etp) && same_unless(kEpAxis, a.ep, b.ep) &&
         same_unless(kEdpAxis, a.edp, b.edp) &&
         (!IsHybrid(group) ||
          InHybridGroup(group.part, layout.expert_shard(), layout.edp(), a.edp, b.edp));
}

/// Whether two ranks are in one group, said of the places alone.
bool Together(const ProcessGroup& group, const ParallelConfig& layout, int rank, int other) {
  if (group.grid == ParallelGrid::kExperts) return ExpertsTogether(group, layout, rank, other);
  const RankPlace a = PlaceOf(layout, rank);
  const RankPlace b = PlaceOf(layout, other);
  const auto same_unless = [&group](unsigned axis, int x, int y) {
    return (group.axes & axis) != 0 || x == y;
  };
  const bool spanned = same_unless(kTpAxis, a.tp, b.tp) && same_unless(kCpAxis, a.cp, b.cp) &&
                       same_unless(kDpAxis, a.dp, b.dp) && same_unless(kPpAxis, a.pp, b.pp);
  // Every rank holds heads of its own.
  if (group.kind == GroupKind::kKeyValue) return spanned && a.tp == b.tp;
  if (IsHybrid(group)) {
    const auto cp = static_cast<int>(layout.cp);
    return spanned && InHybridGroup(group.part, layout.shard, layout.cp * layout.dp,
                                    a.cp + cp * a.dp, b.cp + cp * b.dp);
  }
  if (group.part == GroupPart::kAll || a.pp == b.pp) return spanned;
  const auto at_an_end = [&layout](int pp) { return pp == 0 || pp == layout.pp - 1; };
  return spanned && at_an_end(a.pp) && at_an_end(b.pp);
}

TEST(ProcessGroups, PlacesAndRanksAreInverse) {
  for (const ParallelConfig& layout : RandomGrids()) {
    int rank = 0;
    // tp fastest, then cp, dp and pp.
    for (int pp = 0; pp < layout.pp; ++pp) {
      for (int dp = 0; dp < layout.dp; ++dp) {
        for (int cp = 0; cp < layout.cp; ++cp) {
          for (int tp = 0; tp < layout.tp; ++tp, ++rank) {
            const RankPlace place = {.tp = tp, .cp = cp, .dp = dp, .pp = pp};
            EXPECT_EQ(PlaceOf(layout, rank), place);
            EXPECT_EQ(RankAt(layout, place), rank);
          }
        }
      }
    }
  }
}

TEST(ProcessGroups, AreTheRanksThatDifferOnTheirAxesOnly) {
  for (const ParallelConfig& layout : RandomGrids()) {
    const int world = static_cast<int>(layout.world_size());
    for (const ProcessGroup& group : kProcessGroups) {
      for (int rank = 0; rank < world; ++rank) {
        std::vector<int> expected;
        for (int other = 0; other < world; ++other) {
          if (Together(group, layout, rank, other)) expected.push_back(other);
        }
        EXPECT_EQ(GroupMembers(layout, group.kind, rank), expected) << Name(group.kind);
      }
    }
  }
}

TEST(ProcessGroups, PartitionTheWorldAndAgreeOnTheirMembers) {
  for (const ParallelConfig& layout : RandomGrids()) {
    const int world = static_cast<int>(layout.world_size());
    for (const ProcessGroup& group : kProcessGroups) {
      std::set<int> seen;
      for (int rank = 0; rank < world; ++rank) {
        const std::vector<int> members = GroupMembers(layout, group.kind, rank);
        const GroupPlace place = PlaceInGroup(layout, group.kind, rank);
        EXPECT_EQ(place.size, static_cast<int>(members.size()));
        EXPECT_EQ(members[static_cast<size_t>(place.rank)], rank);
        EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
        EXPECT_EQ(place.stride, members.size() > 1 ? members[1] - members[0] : 1);
        if (place.rank != 0) continue;
        for (const int member : members) {
          EXPECT_TRUE(seen.insert(member).second) << "in two groups";
          EXPECT_EQ(GroupMembers(layout, group.kind, member), members);
        }
      }
      EXPECT_EQ(static_cast<int>(seen.size()), world) << Name(group.kind);
    }
  }
}

// Within a stage: etp fastest, then ep and edp.
TEST(ProcessGroups, ExpertsAreFoldedOverTheRanksOfAStage) {
  const ParallelConfig layout = {.tp = 2, .cp = 2, .pp = 2, .ep = 4, .etp = 1, .dp = 3};
  EXPECT_EQ(layout.edp(), 3);
  EXPECT_EQ(ExpertPlaceOf(layout, 12 + 6), (ExpertPlace{.etp = 0, .ep = 2, .edp = 1}));
  using Members = std::vector<int>;
  EXPECT_EQ(GroupMembers(layout, GroupKind::kExpert, 18), (Members{16, 17, 18, 19}));
  EXPECT_EQ(GroupMembers(layout, GroupKind::kExpertData, 18), (Members{14, 18, 22}));
  const ParallelConfig split = {.tp = 4, .ep = 2, .etp = 2, .dp = 2};
  EXPECT_EQ(GroupMembers(split, GroupKind::kExpertTensor, 5), (Members{4, 5}));
  EXPECT_EQ(GroupMembers(split, GroupKind::kExpert, 5), (Members{5, 7}));
  EXPECT_EQ(GroupMembers(split, GroupKind::kExpertModel, 5), (Members{4, 5, 6, 7}));
  EXPECT_EQ(GroupMembers(split, GroupKind::kExpertData, 5), (Members{1, 5}));
}

// A replica's experts are sharded over those of its ranks that hold the same ones.
TEST(ProcessGroups, ShardExpertsWithinTheReplica) {
  ParallelConfig layout = {.tp = 2, .ep = 2, .dp = 8, .zero = 1, .shard = 4};
  EXPECT_EQ(layout.expert_shard(), 4);
  using Members = std::vector<int>;
  EXPECT_EQ(GroupMembers(layout, GroupKind::kExpertShard, 11), (Members{9, 11, 13, 15}));
  EXPECT_EQ(GroupMembers(layout, GroupKind::kExpertReplica, 11), (Members{3, 11}));
  layout.ep = 8;
  EXPECT_EQ(layout.expert_shard(), 1) << "each once in a replica";
  EXPECT_EQ(GroupMembers(layout, GroupKind::kExpertShard, 11), (Members{11}));
  EXPECT_EQ(GroupMembers(layout, GroupKind::kExpertReplica, 11), (Members{3, 11}));
}

// Runs of neighbours; those that share all heads are the tensor-parallel group itself.
TEST(ProcessGroups, RanksWithTheSameKeysAndValues) {
  const ParallelConfig layout = {.tp = 6, .cp = 2, .pp = 2, .dp = 2};
  const auto members = [&layout](int rank, int64_t copies) {
    return GroupMembers(layout, GroupKind::kKeyValue, rank, copies);
  };
  using Members = std::vector<int>;
  EXPECT_EQ(members(16, 3), (Members{15, 16, 17}));
  EXPECT_EQ(members(16, 2), (Members{16, 17}));
  EXPECT_EQ(members(16, 1), (Members{16}));
  EXPECT_EQ(members(16, 6), (Members{16}));
  EXPECT_EQ(PlaceInGroup(layout, GroupKind::kKeyValue, 47, 3),
            (GroupPlace{.rank = 2, .size = 3, .stride = 1}));
}

TEST(ProcessGroups, HaveTheSizesOfTheirAxes) {
  const ParallelConfig layout = {.tp = 2, .cp = 3, .pp = 5, .dp = 7};
  const auto size = [&layout](GroupKind kind) { return PlaceInGroup(layout, kind, 0).size; };
  EXPECT_EQ(size(GroupKind::kWorld), 210);
  EXPECT_EQ(size(GroupKind::kTensor), 2);
  EXPECT_EQ(size(GroupKind::kContext), 3);
  EXPECT_EQ(size(GroupKind::kData), 21);
  EXPECT_EQ(size(GroupKind::kPipeline), 5);
  EXPECT_EQ(size(GroupKind::kEmbedding), 2);
  EXPECT_EQ(PlaceInGroup(layout, GroupKind::kEmbedding, 42), GroupPlace()) << "the second stage";
  EXPECT_EQ(PlaceInGroup({.pp = 1}, GroupKind::kEmbedding, 0), GroupPlace());
  EXPECT_EQ(size(GroupKind::kShard), 1) << "sharded over all";
  EXPECT_EQ(size(GroupKind::kReplica), 1);
}

TEST(ProcessGroups, CutTheDataGroupIntoShardedReplicas) {
  ParallelConfig layout = {.tp = 2, .cp = 2, .dp = 6};
  layout.shard = 4;
  using Members = std::vector<int>;
  EXPECT_EQ(GroupMembers(layout, GroupKind::kShard, 3), (Members{1, 3, 5, 7}));
  EXPECT_EQ(GroupMembers(layout, GroupKind::kReplica, 3), (Members{3, 11, 19}));
  EXPECT_EQ(PlaceInGroup(layout, GroupKind::kReplica, 11),
            (GroupPlace{.rank = 1, .size = 3, .stride = 8}));
}

TEST(ProcessGroupsDeathTest, RefusesWhatIsNoPlace) {
  EXPECT_DEATH(PlaceOf({.tp = 2}, 2), "rank 2 of a world of 2");
  EXPECT_DEATH(PlaceOf({.dp = 0}, 0), "an axis of 0 ranks");
  EXPECT_DEATH(ExpertPlaceOf({.ep = 4, .dp = 6}, 0), "etp 1 x ep 4 of 6 ranks of a stage");
  EXPECT_DEATH(PlaceInGroup({.dp = 4, .shard = 3}, GroupKind::kShard, 0), "4 ranks in runs of 3");
}

}  // namespace
}  // namespace trimtab
