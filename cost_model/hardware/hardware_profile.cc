#include "cost_model/hardware/hardware_profile.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cost_model/hardware/builtin_profiles.h"
#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/nearest_name.h"
#include "engine/base/plain_name.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

/// What says nothing in a GPU's name: who makes it, what it is built into, of which kind its memory
/// is.
constexpr std::string_view kOfNoMatter[] = {"nvidia", "geforce", "gpu",  "tesla", "dgx",    "hgx",
                                            "hbm2",   "hbm2e",   "hbm3", "hbm3e", "tensor", "core"};

/// "80gb" of "80g", "80gb" or "80gib"; else empty.
std::string MemoryWord(const std::string& word) {
  const size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
  const std::string unit = word.substr(digits);
  const bool memory = digits > 0 && (unit == "g" || unit == "gb" || unit == "gib");
  return memory ? word.substr(0, digits) + "gb" : "";
}

/// "h100sxm80gb" of "NVIDIA H100 80 GB SXM5": a plain name without what says nothing, with socket
/// and memory at the end. Of two memories the first counts.
std::string PlainGpuName(const std::string& name) {
  std::string plain;
  std::string socket;
  std::string memory;
  const std::vector<std::string> words = PlainWords(name);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (std::ranges::find(kOfNoMatter, word) != std::end(kOfNoMatter)) continue;
    std::string of_memory = MemoryWord(word);
    if (of_memory.empty() && i + 1 < words.size()) {
      const bool number = word.find_first_not_of("0123456789") == std::string::npos;
      if (number) of_memory = MemoryWord(word + words[i + 1]);  // "80 GB"
      if (!of_memory.empty()) ++i;
    }
    if (!of_memory.empty()) {
      if (memory.empty()) memory = of_memory;
    } else if (word == "sxm" || (word.size() == 4 && word.starts_with("sxm"))) {  // sxm4, sxm5
      socket = "sxm";
    } else {
      plain += word;
    }
  }
  return plain + socket + memory;
}

/// JSON with a line per key and per row of a table: rows of numbers stay together.
void Print(const nlohmann::json& json, size_t depth, std::string& text) {
  const bool nested = std::any_of(json.begin(), json.end(),
                                  [](const nlohmann::json& each) { return each.is_structured(); });
  if (!json.is_structured() || json.empty() || (json.is_array() && !nested)) {
    text += json.dump();
    return;
  }
  text += json.is_object() ? '{' : '[';
  const char* separator = "\n";
  for (const auto& [key, value] : json.items()) {
    text += separator + std::string(depth + 1, ' ');
    if (json.is_object()) text += nlohmann::json(key).dump() + ": ";
    Print(value, depth + 1, text);
    separator = ",\n";
  }
  text += '\n' + std::string(depth, ' ') + (json.is_object() ? '}' : ']');
}

}  // namespace

double PeakOf16Bits(const HardwareProfile& profile) {
  for (const char* name : {"bf16", "fp16"}) {
    const auto peak = profile.peak_flops.find(name);
    if (peak != profile.peak_flops.end()) return peak->second.value;
  }
  return 0;
}

double VisibleMemory(const HardwareProfile& profile) {
  constexpr double kGib = 1.073741824;
  constexpr double kShown = 0.99;
  return profile.memory_bytes.value * kGib * kShown;
}

std::string ToString(const Mode& mode) { return fmt::format("{}x{}", mode.ranks, mode.threads); }

std::string InWords(const Mode& mode) {
  return fmt::format("{} rank{} x {} thread{}", mode.ranks, mode.ranks == 1 ? "" : "s",
                     mode.threads, mode.threads == 1 ? "" : "s");
}

Mode ParseMode(const std::string& text, const std::string& what) {
  Mode mode;
  const char* end = text.data() + text.size();
  const auto ranks = std::from_chars(text.data(), end, mode.ranks);
  if (ranks.ec == std::errc() && ranks.ptr != end && *ranks.ptr == 'x') {
    const auto threads = std::from_chars(ranks.ptr + 1, end, mode.threads);
    if (threads.ec == std::errc() && threads.ptr == end && mode.ranks >= 1 && mode.threads >= 1) {
      return mode;
    }
  }
  throw UsageError(
      fmt::format("{}: expected ranks x threads, such as 2x1, got \"{}\"", what, text));
}

double SpreadOf(const ModeTables& tables) {
  double worst_table = 0;
  double step = 0;
  for (const auto& [name, spread] : tables.spread) {
    double& which = name == "step" ? step : worst_table;
    which = std::max(which, spread);
  }
  return std::hypot(worst_table, step, tables.probe_spread);
}

HardwareProfile LoadHardwareProfile(const std::string& path) {
  return HardwareProfileFromJson(ReadJsonFile(path), path + ": $");
}

void SaveHardwareProfile(const HardwareProfile& profile, const std::string& path) {
  std::string text;
  Print(ToJson(profile), 0, text);
  text += '\n';
  AtomicFile file(path, Writers::kSeveral);  // several searches may measure their machine at once
  file.Append(text);
  file.Commit();
}

std::vector<std::string> BuiltinProfileNames() {
  std::vector<std::string> names;
  for (const EmbeddedJson& each : ProfileFiles()) names.emplace_back(each.name);
  return names;
}

const std::vector<HardwareProfile>& BuiltinProfiles() {
  static const std::vector<HardwareProfile> profiles = [] {
    std::vector<HardwareProfile> all;
    for (const EmbeddedJson& each : ProfileFiles()) {
      const std::string where = std::string(each.name) + " (built in)";
      all.push_back(HardwareProfileFromJson(ParseJsonText(each.json, where), where + ": $"));
    }
    return all;
  }();
  return profiles;
}

const HardwareProfile* FindBuiltinProfile(const std::string& name_or_alias) {
  const std::string asked = PlainGpuName(name_or_alias);
  const auto is_name = [&](const std::string& each) { return PlainGpuName(each) == asked; };
  for (const HardwareProfile& profile : BuiltinProfiles()) {
    if (is_name(profile.name) || std::ranges::any_of(profile.aliases, is_name)) return &profile;
  }
  return nullptr;
}

HardwareProfile BuiltinProfile(const std::string& name) {
  for (const HardwareProfile& profile : BuiltinProfiles()) {
    if (profile.name == name) return profile;
  }
  throw UsageError(fmt::format("no hardware profile is called '{}'{}", name,
                               SuggestName(name, BuiltinProfileNames())));
}

}  // namespace trimtab
