#include "cost_model/closed_form/short_groups.h"

#include <algorithm>

#include "cost_model/closed_form/plan_range.h"

namespace trimtab {
namespace {

/// Which of those that are left stands for the others.
constexpr int64_t kRepeated = 2;

/// Neighbouring layers of a group that are alike.
struct Run {
  int64_t first = 0;
  int64_t count = 0;
};

/// The longest of layers [first, first + count), the last of several.
Run LongestRun(const std::vector<int64_t>& kinds, int64_t first, int64_t count) {
  Run longest;
  Run run = {first, 0};
  for (int64_t layer = first; layer < first + count; ++layer) {
    if (kinds[static_cast<size_t>(layer)] != kinds[static_cast<size_t>(run.first)]) {
      run = {layer, 0};
    }
    ++run.count;
    if (run.count >= longest.count) longest = run;
  }
  return longest;
}

}  // namespace

std::vector<ShortGroup> GroupsOf(const ModelChunk& chunk, const RecomputeConfig& plan,
                                 const std::vector<int64_t>& first_alike) {
  std::vector<ShortGroup> groups;
  for (int64_t layer = 0; layer < chunk.num_layers;) {
    const int64_t count = RecomputeGroupOf(plan, layer, chunk.num_layers).count;
    const int64_t first = chunk.first_layer + layer;
    const Run run = LongestRun(first_alike, first, count);
    groups.push_back({.layers = count,
                      .repeated = run.count < kShownOfGroup ? 0 : run.first - first + kRepeated});
    layer += count;
  }
  return groups;
}

ShortChunk Shorten(const ModelChunk& chunk, const RecomputeConfig& plan,
                   const std::vector<int64_t>& first_alike) {
  if (!IsUniform(plan) || plan.num_layers <= kShownOfGroup) return {chunk, plan};
  const std::vector<ShortGroup> groups = GroupsOf(chunk, plan, first_alike);
  // All groups but the last have as many layers.
  int64_t most = kShownOfGroup;
  int64_t first = chunk.first_layer;
  for (const ShortGroup& group : groups) {
    const int64_t run = LongestRun(first_alike, first, group.layers).count;
    most = std::max(most, group.layers - std::max<int64_t>(0, run - kShownOfGroup));
    first += group.layers;
  }
  if (groups.empty() || most >= groups.front().layers) return {chunk, plan};
  // What is left of each group, and whether the model has such layers one after the other.
  ModelChunk left = chunk;
  left.num_layers = 0;
  first = chunk.first_layer;
  for (const ShortGroup& group : groups) {
    const int64_t layers = std::min(group.layers, most);
    for (int64_t i = 0; i < layers; ++i) {
      const bool behind = i > group.repeated;
      const int64_t stands_for = first + i + (behind ? group.layers - layers : 0);
      const int64_t stands_at = chunk.first_layer + left.num_layers + i;
      const auto kind = [&](int64_t layer) { return first_alike[static_cast<size_t>(layer)]; };
      if (kind(stands_for) != kind(stands_at)) return {chunk, plan};
    }
    left.num_layers += layers;
    first += group.layers;
  }
  // What was recorded says itself which of its layers stand for others.
  const ShortChunk shortened = {left, UniformOf(most)};
  const std::vector<ShortGroup> shown = GroupsOf(left, shortened.plan, first_alike);
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool cut = shown[i].layers < groups[i].layers;
    if (cut && shown[i].repeated != groups[i].repeated) return {chunk, plan};
  }
  return shortened;
}

}  // namespace trimtab
