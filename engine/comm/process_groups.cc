#include "engine/comm/process_groups.h"

#include <bit>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr int kAxes = 4;

/// Sizes of the axes of a grid, fastest first.
std::array<int, kAxes> SizesOf(const ParallelConfig& layout, ParallelGrid grid) {
  const auto sizes = [&layout](int64_t first, int64_t second, int64_t third) {
    return std::array<int, kAxes>{static_cast<int>(first), static_cast<int>(second),
                                  static_cast<int>(third), static_cast<int>(layout.pp)};
  };
  if (grid == ParallelGrid::kDense) return sizes(layout.tp, layout.cp, layout.dp);
  const int64_t stage = layout.tp * layout.cp * layout.dp;
  TRIMTAB_ASSERT(stage % (layout.etp * layout.ep) == 0, "etp {} x ep {} of {} ranks of a stage",
                 layout.etp, layout.ep, stage);
  return sizes(layout.etp, layout.ep, layout.edp());
}

/// `size` ranks, `step` apart, of which this one is `own`.
struct Row {
  int size = 1;
  int step = 1;
  int own = 0;
};

/// The ranks along the axes of a group.
Row RowOf(const ProcessGroup& group, const ParallelConfig& layout, int rank) {
  const std::array<int, kAxes> sizes = SizesOf(layout, group.grid);
  Row row;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    if ((group.axes >> axis & 1U) != 0) {
      row.size *= sizes[axis];
    } else if (group.axes >> axis != 0) {
      row.step *= sizes[axis];  // an axis below those of the group
    }
  }
  row.own = rank / row.step % row.size;
  return row;
}

/// The part of a row that makes the group.
Row Cut(const Row& row, GroupPart part, int run) {
  switch (part) {
    case GroupPart::kAll:
      return row;
    case GroupPart::kEnds:
      if (row.size == 1 || (row.own != 0 && row.own != row.size - 1)) return {};
      return {2, row.step * (row.size - 1), row.own == 0 ? 0 : 1};
    case GroupPart::kNeighbours:
    case GroupPart::kAcross:
      break;
  }
  if (run == 0 || run == row.size) return {};
  TRIMTAB_ASSERT(row.size % run == 0, "{} ranks in runs of {}", row.size, run);
  if (part == GroupPart::kNeighbours) return {run, row.step, row.own % run};
  return {row.size / run, row.step * run, row.own / run};
}

/// Ranks of a run of neighbours, where the group is one or goes across them.
int64_t RunOf(const ProcessGroup& group, const ParallelConfig& layout, int64_t kv_copies) {
  if (group.kind == GroupKind::kKeyValue) return kv_copies;
  return group.grid == ParallelGrid::kDense ? layout.shard : layout.expert_shard();
}

Row MembersOf(const ParallelConfig& layout, GroupKind kind, int rank, int64_t kv_copies) {
  const ProcessGroup& group = kProcessGroups[static_cast<size_t>(kind)];
  const int64_t run = RunOf(group, layout, kv_copies);
  return Cut(RowOf(group, layout, rank), group.part, static_cast<int>(run));
}

constexpr bool InOrder() {
  for (size_t i = 0; i < kProcessGroups.size(); ++i) {
    if (kProcessGroups[i].kind != static_cast<GroupKind>(i)) return false;
  }
  return true;
}
static_assert(InOrder(), "a row is found by its kind");

constexpr bool AxesSideBySide() {
  for (const ProcessGroup& group : kProcessGroups) {
    const unsigned from_first = group.axes >> std::countr_zero(group.axes);
    if (!std::has_single_bit(from_first + 1)) return false;
  }
  return true;
}
static_assert(AxesSideBySide(), "the ranks of a group are one row");

}  // namespace

RankPlace PlaceOf(const ParallelConfig& layout, int rank) {
  const std::array<int, kAxes> sizes = SizesOf(layout, ParallelGrid::kDense);
  for (const int size : sizes) TRIMTAB_ASSERT(size >= 1, "an axis of {} ranks", size);
  TRIMTAB_ASSERT(rank >= 0 && rank < layout.world_size(), "rank {} of a world of {}", rank,
                 layout.world_size());
  const auto [tp, cp, dp, pp] = sizes;
  return {.tp = rank % tp,
          .cp = rank / tp % cp,
          .dp = rank / (tp * cp) % dp,
          .pp = rank / (tp * cp * dp)};
}

ExpertPlace ExpertPlaceOf(const ParallelConfig& layout, int rank) {
  const auto [etp, ep, edp, pp] = SizesOf(layout, ParallelGrid::kExperts);
  return {.etp = rank % etp, .ep = rank / etp % ep, .edp = rank / (etp * ep) % edp};
}

int RankAt(const ParallelConfig& layout, const RankPlace& place) {
  const auto [tp, cp, dp, pp] = SizesOf(layout, ParallelGrid::kDense);
  return place.tp + tp * (place.cp + cp * (place.dp + dp * place.pp));
}

GroupPlace PlaceInGroup(const ParallelConfig& layout, GroupKind group, int rank,
                        int64_t kv_copies) {
  const Row row = MembersOf(layout, group, rank, kv_copies);
  return {.rank = row.own, .size = row.size, .stride = row.size > 1 ? row.step : 1};
}

std::vector<int> GroupMembers(const ParallelConfig& layout, GroupKind group, int rank,
                              int64_t kv_copies) {
  const Row row = MembersOf(layout, group, rank, kv_copies);
  std::vector<int> members;
  for (int i = 0; i < row.size; ++i) members.push_back(rank + (i - row.own) * row.step);
  return members;
}

}  // namespace trimtab
