#include "engine/infer/serving_json.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

constexpr int64_t kMax32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();

/// In the order of CacheNames().
constexpr std::array<DType, 5> kCaches = {DType::kF32, DType::kBf16, DType::kF16, DType::kF8E4M3,
                                          DType::kI8};

template <typename Names>
size_t IndexOf(const Names& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  TRIMTAB_ASSERT(found != names.end(), "no such name: {}", name);
  return static_cast<size_t>(found - names.begin());
}

WeightFormat WeightsFromJson(StrictObject& object) {
  std::string name = "fp32";
  object.Choice("weights", name, WeightNames());
  return WeightFormatOf(name);
}

DraftConfig DraftFromJson(const nlohmann::json& json, const std::string& where) {
  DraftConfig draft;
  StrictObject object(json, where);
  draft.model = ModelConfigFromJson(*object.Find("model", Need::kRequired), object.Where("model"));
  draft.weights = WeightsFromJson(object);
  object.Integer("tokens", draft.tokens, 1, kMostProposed, Need::kRequired);
  object.Finish();
  return draft;
}

}  // namespace

const std::vector<std::string>& WeightNames() {
  static const std::vector<std::string> names = {"fp32", "bf16", "fp16", "fp8", "int8", "int4"};
  return names;
}

WeightFormat WeightFormatOf(const std::string& name) {
  return static_cast<WeightFormat>(IndexOf(WeightNames(), name));
}

const std::vector<std::string>& CacheNames() {
  static const std::vector<std::string> names = {"fp32", "bf16", "fp16", "fp8", "int8"};
  return names;
}

DType CacheType(const std::string& name) { return kCaches[IndexOf(CacheNames(), name)]; }

std::string CacheName(DType entries) {
  const auto found = std::find(kCaches.begin(), kCaches.end(), entries);
  TRIMTAB_ASSERT(found != kCaches.end(), "a cache of {}", Name(entries));
  return CacheNames()[static_cast<size_t>(found - kCaches.begin())];
}

ServingConfig ServingConfigFromJson(const nlohmann::json& json, const std::string& where) {
  ServingConfig config;
  StrictObject object(json, where);
  config.model = ModelConfigFromJson(*object.Find("model", Need::kRequired), object.Where("model"));
  if (const nlohmann::json* layout = object.Find("layout")) {
    config.layout = ParallelConfigFromJson(*layout, object.Where("layout"));
  }
  object.Integer("prefill", config.prefill, 0, kMax32);
  object.Choice("device", config.device, kDeviceNames);
  object.Integer("threads_per_rank", config.threads_per_rank, 0, 4096);
  object.Integer("memory_per_rank_bytes", config.memory_per_rank_bytes, 0, kMax64);
  config.weights = WeightsFromJson(object);
  std::string cache = "fp32";
  object.Choice("cache", cache, CacheNames());
  config.cache = CacheType(cache);
  object.Integer("block_size", config.block_size, 1, 4096);
  object.Integer("cache_blocks", config.cache_blocks, 0, kMax32);
  object.Boolean("prefix_cache", config.prefix_cache);
  object.Integer("lookup_tokens", config.lookup_tokens, 0, kMostProposed);
  if (const nlohmann::json* draft = object.Find("draft")) {
    config.draft = DraftFromJson(*draft, object.Where("draft"));
  }
  EngineLimits& limits = config.limits;
  object.Integer("sequences", limits.sequences, 1, 65536);
  object.Integer("tokens_per_step", limits.tokens_per_step, 1, kMax32);
  object.Integer("waiting", limits.waiting, 0, kMax32);
  object.Integer("sequence_length", limits.sequence_length, 0, kMax32);
  object.Finish();
  return config;
}

nlohmann::json ToJson(const ServingConfig& config) {
  nlohmann::json json = {{"model", ToJson(config.model)},
                         {"layout", ToJson(config.layout)},
                         {"prefill", config.prefill},
                         {"device", Name(config.device)},
                         {"threads_per_rank", config.threads_per_rank},
                         {"memory_per_rank_bytes", config.memory_per_rank_bytes},
                         {"weights", Name(config.weights)},
                         {"cache", CacheName(config.cache)},
                         {"block_size", config.block_size},
                         {"cache_blocks", config.cache_blocks},
                         {"prefix_cache", config.prefix_cache},
                         {"lookup_tokens", config.lookup_tokens},
                         {"sequences", config.limits.sequences},
                         {"tokens_per_step", config.limits.tokens_per_step},
                         {"waiting", config.limits.waiting},
                         {"sequence_length", config.limits.sequence_length}};
  if (const DraftConfig& draft = config.draft; draft.tokens > 0) {
    json["draft"] = {
        {"model", ToJson(draft.model)}, {"weights", Name(draft.weights)}, {"tokens", draft.tokens}};
  }
  return json;
}

ServingConfig LoadServingConfig(const std::string& path) {
  const nlohmann::json json = ReadJsonFile(path);
  if (json.is_object() && json.contains("recommended")) {
    const nlohmann::json& recommended = json["recommended"];
    if (!recommended.is_object() || !recommended.contains("serving")) {
      throw InputError(fmt::format(
          "{}: $.recommended.serving: missing; expected the report of a search for serving", path));
    }
    return ServingConfigFromJson(recommended["serving"], path + ": $.recommended.serving");
  }
  return ServingConfigFromJson(json, path + ": $");
}

}  // namespace trimtab
