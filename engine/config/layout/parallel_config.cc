#include "engine/config/layout/parallel_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/json/text_values.h"
#include "engine/config/layout/layout_keys.h"
#include "engine/config/model/model_limits.h"

namespace trimtab {
namespace {

template <typename Enum, size_t kCount>
std::string_view NameIn(const std::array<std::string_view, kCount>& names, Enum value) {
  const auto index = static_cast<size_t>(value);
  TRIMTAB_ASSERT(index < kCount, "value {} of an enum of {}", index, kCount);
  return names[index];
}

/// An empty string, or why the layout has more ranks than can be counted.
std::string WorldTooLarge(const ParallelConfig& layout) {
  int64_t world = 1;
  for (const int64_t size : {layout.tp, layout.cp, layout.pp, layout.dp}) {
    world = std::min(world * size, 2 * kMaxWorld);  // each is at most kMaxWorld: no overflow
  }
  if (world <= kMaxWorld) return "";
  return fmt::format("tp {} x cp {} x pp {} x dp {} is more than {} ranks", layout.tp, layout.cp,
                     layout.pp, layout.dp, kMaxWorld);
}

const LayoutKey& FindKey(const std::string& name) {
  std::vector<std::string> valid;
  for (const LayoutKey& key : LayoutKeys()) {
    if (name == key.name) return key;
    valid.emplace_back(key.name);
  }
  throw UsageError(fmt::format("layout: unknown key '{}'{}", name, SuggestName(name, valid)));
}

}  // namespace

std::string_view Name(Schedule schedule) {
  constexpr std::array<std::string_view, 4> kNames = {"1f1b", "gpipe", "interleaved-1f1b",
                                                      "zero-bubble"};
  return NameIn(kNames, schedule);
}

std::string_view Name(CpCommType type) {
  constexpr std::array<std::string_view, 2> kNames = {"p2p", "all_gather"};
  return NameIn(kNames, type);
}

std::string_view Name(Dispatch dispatch) {
  constexpr std::array<std::string_view, 2> kNames = {"alltoall", "allgather"};
  return NameIn(kNames, dispatch);
}

std::string_view Name(Precision precision) {
  constexpr std::array<std::string_view, kPrecisions.size()> kNames = {"fp32", "tf32", "bf16",
                                                                       "fp16", "fp8"};
  return NameIn(kNames, precision);
}

std::string_view Name(MasterWeights master) {
  constexpr std::array<std::string_view, 2> kNames = {"fp32", "remainder"};
  return NameIn(kNames, master);
}

std::string ToString(const ParallelConfig& layout) {
  const ParallelConfig defaults;
  std::string text;
  for (const LayoutKey& key : LayoutKeys()) {
    const std::string value = key.print(layout);
    if (!key.always_printed && value == key.print(defaults)) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key.name, value);
  }
  return text;
}

namespace {

/// Where none is said: the one for several chunks on a rank, if there are such.
Schedule UsualSchedule(const ParallelConfig& layout) {
  return layout.vp > 1 ? Schedule::kInterleaved1F1B : Schedule::k1F1B;
}

}  // namespace

ParallelConfig ParseLayout(const std::string& text, int64_t world_size) {
  ParallelConfig layout;
  std::set<std::string> seen;
  for (const std::string& part : Split(text, ',')) {
    if (text.empty()) break;
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const LayoutKey& key = FindKey(name);
    if (equals == std::string::npos) {
      throw UsageError(fmt::format("layout: {} has no value; expected {}=...", name, name));
    }
    if (!seen.insert(name).second) throw UsageError(fmt::format("layout: {} is given twice", name));
    key.parse(part.substr(equals + 1), "layout: " + name, layout);
  }
  if (!seen.contains("schedule")) layout.schedule = UsualSchedule(layout);
  const std::string too_large = WorldTooLarge(layout);
  if (!too_large.empty()) throw UsageError("layout: " + too_large);
  if (world_size > 0 && !seen.contains("dp")) {
    const int64_t model_ranks = layout.tp * layout.cp * layout.pp;
    if (world_size % model_ranks != 0) {
      throw UsageError(
          fmt::format("layout: tp {} x cp {} x pp {} = {} does not divide the {} ranks", layout.tp,
                      layout.cp, layout.pp, model_ranks, world_size));
    }
    layout.dp = world_size / model_ranks;
  }
  return layout;
}

ParallelConfig ParallelConfigFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  ParallelConfig layout;
  for (const LayoutKey& key : LayoutKeys()) key.read(object, key.name, layout);
  object.Finish();
  if (!json.contains("schedule")) layout.schedule = UsualSchedule(layout);
  const std::string too_large = WorldTooLarge(layout);
  if (!too_large.empty()) throw InputError(where + ": " + too_large);
  return layout;
}

nlohmann::json ToJson(const ParallelConfig& layout) {
  nlohmann::json json;
  for (const LayoutKey& key : LayoutKeys()) json[key.name] = key.write(layout);
  return json;
}

std::string DescribeLayoutKeys() {
  std::string text;
  for (const LayoutKey& key : LayoutKeys()) {
    text += fmt::format("{:<23}{} ({})\n", key.name, key.meaning, key.values());
  }
  return text;
}

}  // namespace trimtab
