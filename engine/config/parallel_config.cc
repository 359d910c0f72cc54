#include "engine/config/parallel_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/config/model_limits.h"
#include "engine/config/strict_json.h"

namespace trimtab {
namespace {

// The integer keys of a layout: in --layout, in JSON, and in the order ToString writes them.
struct SizeKey {
  const char* name;
  int64_t ParallelConfig::*member;
  int64_t min;
  int64_t max;
};
constexpr SizeKey kSizeKeys[] = {
    {"tp", &ParallelConfig::tp, 1, kMaxWorld},
    {"cp", &ParallelConfig::cp, 1, kMaxWorld},
    {"pp", &ParallelConfig::pp, 1, kMaxWorld},
    {"vp", &ParallelConfig::vp, 1, kMaxLayers},
    {"ep", &ParallelConfig::ep, 1, kMaxWorld},
    {"etp", &ParallelConfig::etp, 1, kMaxWorld},
    {"dp", &ParallelConfig::dp, 1, kMaxWorld},
    {"zero", &ParallelConfig::zero, 0, 3},
    {"mbs", &ParallelConfig::micro_batch, 1, kMaxBatch},
};

// The keys whose values are words.
struct WordKey {
  const char* name;
  std::string ParallelConfig::*member;
  std::vector<std::string> valid;
};
const std::vector<WordKey>& WordKeys() {
  static const std::vector<WordKey> keys = {
      {"schedule", &ParallelConfig::schedule, {"1f1b", "gpipe", "interleaved-1f1b", "zero-bubble"}},
      {"precision", &ParallelConfig::precision, {"fp32", "tf32", "bf16", "fp16", "fp8"}},
      {"master", &ParallelConfig::master, {"fp32", "remainder"}},
      {"moments", &ParallelConfig::moments, {"fp32", "bf16", "fp16"}},
      {"grads", &ParallelConfig::gradients, {"fp32", "bf16"}},
  };
  return keys;
}

const std::vector<std::string>& LayoutKeys() {
  static const std::vector<std::string> keys = {
      "tp",   "sp",       "cp",  "pp",        "vp",        "ep",     "etp",     "dp",
      "zero", "schedule", "mbs", "recompute", "precision", "master", "moments", "grads"};
  return keys;
}

/// The value of an integer that fills all of `text`; false if it is none.
bool ParseInteger(std::string_view text, int64_t& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty();
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

void SetLayoutKey(ParallelConfig& layout, const std::string& key, const std::string& value,
                  const std::string& what) {
  for (const SizeKey& size : kSizeKeys) {
    if (key != size.name) continue;
    int64_t& member = layout.*size.member;
    if (ParseInteger(value, member) && member >= size.min && member <= size.max) return;
    throw UsageError(fmt::format("{}: expected an integer from {} to {}, got '{}'", what, size.min,
                                 size.max, value));
  }
  for (const WordKey& word : WordKeys()) {
    if (key != word.name) continue;
    if (std::find(word.valid.begin(), word.valid.end(), value) == word.valid.end()) {
      throw UsageError(
          fmt::format("{}: unknown value '{}'{}", what, value, SuggestName(value, word.valid)));
    }
    layout.*word.member = value;
    return;
  }
  if (key == "sp") {
    if (value != "0" && value != "1") {
      throw UsageError(fmt::format("{}: expected 0 or 1, got '{}'", what, value));
    }
    layout.sequence_parallel = value == "1";
  } else {
    layout.recompute = ParseRecompute(value, what);
  }
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

RecomputeConfig RecomputeOfLayer(const RecomputeConfig& recompute, int64_t layer) {
  const bool within = recompute.num_layers < 0 || layer < recompute.num_layers;
  if (recompute.kind == RecomputeKind::kNone || !within) return {};
  return {.kind = recompute.kind};
}

std::string ToString(const RecomputeConfig& recompute) {
  if (recompute.kind == RecomputeKind::kNone) return "none";
  if (recompute.num_layers < 0) return "full";
  return fmt::format("full:block:{}", recompute.num_layers);
}

RecomputeConfig ParseRecompute(const std::string& text, const std::string& what) {
  constexpr const char* kAvailable = "available: none, full, full:block:N";
  const std::vector<std::string> parts = Split(text, ':');
  if (text == "none") return {};
  if (text == "full") return {.kind = RecomputeKind::kFull};
  if (parts[0] == "selective") {
    throw UsageError(
        fmt::format("{}: '{}' is not available in this version; {}", what, text, kAvailable));
  }
  int64_t layers = 0;
  const bool counts = parts.size() == 3 && parts[0] == "full" &&
                      (parts[1] == "block" || parts[1] == "uniform") &&
                      ParseInteger(parts[2], layers) && layers >= 1 && layers <= kMaxLayers;
  if (!counts) {
    throw UsageError(fmt::format("{}: unknown recomputation '{}'; {}", what, text, kAvailable));
  }
  if (parts[1] == "block") return {.kind = RecomputeKind::kFull, .num_layers = layers};
  // Groups of one layer are the same as recomputing every layer on its own.
  if (layers == 1) return {.kind = RecomputeKind::kFull};
  throw UsageError(
      fmt::format("{}: groups of {} layers ('{}') are not available in this version; "
                  "available: none, full, full:uniform:1, full:block:N",
                  what, layers, text));
}

std::string ToString(const ParallelConfig& layout) {
  const ParallelConfig defaults;
  std::string text;
  const auto add = [&text](const std::string& key, const auto& value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
  };
  for (const std::string& key : LayoutKeys()) {
    for (const SizeKey& size : kSizeKeys) {
      const bool always = key == "tp" || key == "dp" || key == "mbs";
      const int64_t value = layout.*size.member;
      if (key == size.name && (always || value != defaults.*size.member)) add(key, value);
    }
    if (key == "sp" && layout.sequence_parallel) add(key, 1);
    for (const WordKey& word : WordKeys()) {
      const std::string& value = layout.*word.member;
      if (key == word.name && value != defaults.*word.member) add(key, value);
    }
    if (key == "recompute" && layout.recompute != defaults.recompute) {
      add(key, ToString(layout.recompute));
    }
  }
  return text;
}

ParallelConfig ParseLayout(const std::string& text, int64_t world_size) {
  ParallelConfig layout;
  std::set<std::string> seen;
  for (const std::string& part : Split(text, ',')) {
    if (text.empty()) break;
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    const std::vector<std::string>& valid = LayoutKeys();
    if (std::find(valid.begin(), valid.end(), key) == valid.end()) {
      throw UsageError(fmt::format("layout: unknown key '{}'{}", key, SuggestName(key, valid)));
    }
    if (equals == std::string::npos) {
      throw UsageError(fmt::format("layout: {} has no value; expected {}=...", key, key));
    }
    if (!seen.insert(key).second) throw UsageError(fmt::format("layout: {} is given twice", key));
    SetLayoutKey(layout, key, part.substr(equals + 1), "layout: " + key);
  }
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
  for (const SizeKey& size : kSizeKeys) {
    object.Integer(size.name, layout.*size.member, size.min, size.max);
  }
  object.Boolean("sp", layout.sequence_parallel);
  for (const WordKey& word : WordKeys()) object.Choice(word.name, layout.*word.member, word.valid);
  std::string recompute = "none";
  object.Text("recompute", recompute);
  try {
    layout.recompute = ParseRecompute(recompute, object.Where("recompute"));
  } catch (const UsageError& error) {
    throw InputError(error.what());  // the same words, but it is a file that is wrong
  }
  object.Finish();
  const std::string too_large = WorldTooLarge(layout);
  if (!too_large.empty()) throw InputError(where + ": " + too_large);
  return layout;
}

nlohmann::json ToJson(const ParallelConfig& layout) {
  nlohmann::json json = {{"sp", layout.sequence_parallel},
                         {"recompute", ToString(layout.recompute)}};
  for (const WordKey& word : WordKeys()) json[word.name] = layout.*word.member;
  for (const SizeKey& size : kSizeKeys) json[size.name] = layout.*size.member;
  return json;
}

}  // namespace trimtab
