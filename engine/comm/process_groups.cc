#include "engine/comm/process_groups.h"

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr int kAxes = 4;

/// Sizes of the axes, fastest first.
std::array<int, kAxes> SizesOf(const ParallelConfig& layout) {
  return {static_cast<int>(layout.tp), static_cast<int>(layout.cp), static_cast<int>(layout.dp),
          static_cast<int>(layout.pp)};
}

/// What a group spans along one axis: `size` ranks, `step` apart, of which this one is `own`.
struct Span {
  int size = 1;
  int step = 0;
  int own = 0;
};

std::array<Span, kAxes> SpansOf(const ParallelConfig& layout, GroupKind kind, int rank) {
  const ProcessGroup& group = kProcessGroups[static_cast<size_t>(kind)];
  const std::array<int, kAxes> sizes = SizesOf(layout);
  std::array<Span, kAxes> spans;
  int step = 1;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    const int size = sizes[axis];
    const int own = rank / step % size;
    if ((group.axes >> axis & 1U) != 0) {
      if (!group.ends_only) {
        spans[axis] = {size, step, own};
      } else if (size > 1 && (own == 0 || own == size - 1)) {
        spans[axis] = {2, step * (size - 1), own == 0 ? 0 : 1};
      }
    }
    step *= size;
  }
  return spans;
}

constexpr bool InOrder() {
  for (size_t i = 0; i < kProcessGroups.size(); ++i) {
    if (kProcessGroups[i].kind != static_cast<GroupKind>(i)) return false;
  }
  return true;
}
static_assert(InOrder(), "a row is found by its kind");

}  // namespace

RankPlace PlaceOf(const ParallelConfig& layout, int rank) {
  const std::array<int, kAxes> sizes = SizesOf(layout);
  for (const int size : sizes) TRIMTAB_ASSERT(size >= 1, "an axis of {} ranks", size);
  TRIMTAB_ASSERT(rank >= 0 && rank < layout.world_size(), "rank {} of a world of {}", rank,
                 layout.world_size());
  const auto [tp, cp, dp, pp] = sizes;
  return {.tp = rank % tp,
          .cp = rank / tp % cp,
          .dp = rank / (tp * cp) % dp,
          .pp = rank / (tp * cp * dp)};
}

int RankAt(const ParallelConfig& layout, const RankPlace& place) {
  const auto [tp, cp, dp, pp] = SizesOf(layout);
  return place.tp + tp * (place.cp + cp * (place.dp + dp * place.pp));
}

GroupPlace PlaceInGroup(const ParallelConfig& layout, GroupKind group, int rank) {
  GroupPlace place;
  for (const Span& span : SpansOf(layout, group, rank)) {
    if (place.size == 1 && span.size > 1) place.stride = span.step;
    place.rank += place.size * span.own;
    place.size *= span.size;
  }
  return place;
}

std::vector<int> GroupMembers(const ParallelConfig& layout, GroupKind group, int rank) {
  const std::array<Span, kAxes> spans = SpansOf(layout, group, rank);
  std::vector<int> members = {rank};
  for (const Span& span : spans) members[0] -= span.own * span.step;
  for (const Span& span : spans) {
    const size_t before = members.size();
    for (int i = 1; i < span.size; ++i) {
      for (size_t each = 0; each < before; ++each) members.push_back(members[each] + i * span.step);
    }
  }
  return members;
}

}  // namespace trimtab
