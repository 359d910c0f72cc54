#include "search/recipes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/base/error.h"
#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"
#include "search/enumeration.h"
#include "search/space/space_rows.h"
#include "search/space/space_tree.h"

namespace trimtab {
namespace {

/// A row of a published table. `layout` leaves out dp.
struct Recipe {
  const char* model;  // one of the built-in ones
  const char* gpu;    // one of the names of its profile
  int gpus;
  const char* layout;
};

/// The rows of one table.
struct RecipeTable {
  const char* source;
  std::span<const Recipe> rows;
};

// "Reducing Activation Recomputation in Large Transformer Models" (arXiv:2205.05198), table 3.
constexpr Recipe kMegatron2022[] = {
    {"gpt3-175b", "a100", 64,
     "tp=8,sp=1,pp=8,vp=3,schedule=interleaved-1f1b,mbs=1,recompute=selective:core_attn,"
     "precision=bf16"},
    {"mt-nlg-530b", "a100", 280,
     "tp=8,sp=1,pp=35,vp=3,schedule=interleaved-1f1b,mbs=1,recompute=selective:core_attn,"
     "precision=bf16"},
};
// NeMo Framework performance summaries, releases 24.03 to 25.04 (docs.nvidia.com, and the README of
// NVIDIA/NeMo-Framework-Launcher).
constexpr Recipe kNemo[] = {
    {"gpt3-175b", "gb200", 128,
     "tp=4,sp=1,pp=4,vp=12,schedule=interleaved-1f1b,mbs=2,zero=1,precision=fp8"},
    {"gpt3-175b", "h100", 512,
     "tp=4,sp=1,pp=8,vp=6,schedule=interleaved-1f1b,mbs=2,zero=1,precision=fp8"},
    {"llama2-13b", "h100", 16, "pp=4,vp=10,schedule=interleaved-1f1b,mbs=1,zero=1,precision=fp8"},
    {"llama3-70b", "h100", 64,
     "tp=4,sp=1,cp=2,pp=4,vp=5,schedule=interleaved-1f1b,mbs=1,zero=1,precision=fp8"},
    {"llama3-8b", "b200", 8, "mbs=2,zero=1,precision=fp8"},
    {"llama3.1-405b", "gb200", 128,
     "tp=4,sp=1,cp=2,pp=8,vp=8,schedule=interleaved-1f1b,mbs=1,zero=1,precision=fp8"},
    {"mixtral-8x7b", "b200", 64, "ep=8,mbs=2,zero=1,precision=fp8"},
    {"mixtral-8x7b", "gb200", 64, "ep=8,mbs=2,zero=1,precision=fp8"},
    {"nemotron-4-15b", "b200", 64, "mbs=2,zero=1,precision=fp8"},
    {"nemotron-4-340b", "gb200", 128,
     "tp=8,sp=1,pp=4,vp=12,schedule=interleaved-1f1b,mbs=1,zero=1,precision=fp8"},
    {"nemotron-4-340b", "h100", 128,
     "tp=8,sp=1,pp=8,vp=12,schedule=interleaved-1f1b,mbs=1,zero=1,precision=fp8"},
};
// NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md and its archive, containers 25.09 to
// 26.06.
constexpr Recipe kMegatronBridge[] = {
    {"gpt-oss-120b", "gb300", 64, "ep=16,mbs=4,zero=1,precision=fp8"},
    {"gpt-oss-120b", "gb300", 64, "ep=64,mbs=4,zero=1,precision=bf16"},
    {"llama3-70b", "gb200", 64,
     "tp=2,sp=1,pp=4,vp=5,schedule=interleaved-1f1b,mbs=1,zero=1,precision=fp8"},
    {"llama3.1-405b", "b200", 128,
     "tp=4,sp=1,cp=2,pp=8,vp=8,schedule=interleaved-1f1b,mbs=1,zero=1,precision=fp8"},
    {"qwen3-235b-a22b", "b200", 256, "pp=8,ep=8,mbs=1,zero=1,precision=fp8"},
    {"qwen3-235b-a22b", "b300", 256, "pp=8,ep=8,mbs=2,zero=1,precision=fp8"},
    {"qwen3-235b-a22b", "gb200", 256,
     "pp=8,vp=3,schedule=interleaved-1f1b,ep=32,mbs=1,zero=1,precision=fp8"},
    {"qwen3-235b-a22b", "gb300", 256,
     "pp=4,vp=12,schedule=interleaved-1f1b,ep=32,mbs=2,zero=1,precision=fp8"},
    {"qwen3-235b-a22b", "h100", 256,
     "tp=2,sp=1,pp=8,vp=4,schedule=interleaved-1f1b,ep=32,mbs=1,zero=1,precision=fp8"},
    {"qwen3-30b-a3b", "b200", 8, "ep=8,mbs=4,zero=1,precision=fp8"},
    {"qwen3-30b-a3b", "b300", 8, "ep=8,mbs=8,zero=1,precision=fp8"},
    {"qwen3-30b-a3b", "gb200", 8, "ep=8,mbs=4,zero=1,precision=fp8"},
    {"qwen3-30b-a3b", "gb300", 8, "ep=8,mbs=8,zero=1,precision=fp8"},
    {"qwen3-30b-a3b", "h100", 16, "ep=16,mbs=1,zero=1,precision=fp8"},
};
constexpr RecipeTable kTables[] = {
    {"Megatron-LM 2022", kMegatron2022},
    {"NeMo", kNemo},
    {"Megatron-Bridge", kMegatronBridge},
};

/// Contexts, vocabularies and names differ between releases of one shape.
bool SameShape(const ModelConfig& a, const ModelConfig& b) {
  return a.num_layers == b.num_layers && a.hidden_size == b.hidden_size &&
         a.num_heads == b.num_heads && a.num_kv_heads == b.num_kv_heads &&
         a.ffn_hidden_size == b.ffn_hidden_size && a.moe.num_experts == b.moe.num_experts;
}

bool IsOfKind(const HardwareProfile& profile, const std::string& gpu) {
  return std::find(profile.aliases.begin(), profile.aliases.end(), gpu) != profile.aliases.end();
}

/// A published layout, and what it takes where a rule allows it.
RecipePlace Place(const std::string& source, const Recipe& recipe, const RunConfig& run,
                  const SpeedRequirements& speed, Predictor& predictor) {
  RecipePlace place = {.source = source,
                       .layout = ToString(run.layout),
                       .global_batch = run.global_batch,
                       .refused = {}};
  if (const Rule* rule = FirstBrokenRule(run)) {
    place.layout = recipe.layout;
    place.refused = rule->message(run);
    return place;
  }
  place.prediction = predictor.ClosedForm(run);
  place.refused = BreachOf(run, *place.prediction, speed).why;
  return place;
}

/// Runs of `layout`: with each global batch and optimizer state of the problem.
std::vector<RunConfig> RunsOf(const Problem& problem, const ParallelConfig& layout) {
  RunConfig run = RootOf(problem);
  run.layout = layout;
  run.memory_per_rank_bytes = MemoryLimitBytes(problem, run);
  std::vector<int64_t> batches = problem.global_batches;
  if (batches.empty()) batches = {problem.global_batch};
  std::vector<RunConfig> runs;
  for (const int64_t batch : batches) {
    run.global_batch = batch;
    for (const Numerics& numerics : OptimizerStates(problem, layout.numerics.precision)) {
      run.layout.numerics = numerics;
      runs.push_back(run);
    }
  }
  return runs;
}

/// What runs comes first, by its score.
std::pair<int, SortKey> KeyOf(const RecipePlace& place, const RunConfig& run, Objective objective) {
  if (!place.prediction) return {2, {}};
  return {place.refused.empty() ? 0 : 1, PredictionKey(objective, run, *place.prediction)};
}

/// The best of all.
RecipePlace BestPlace(const std::string& source, const Recipe& recipe, const Problem& problem,
                      const ParallelConfig& layout, Objective objective, Predictor& predictor) {
  const SpeedRequirements speed(problem);
  std::optional<RecipePlace> best;
  std::pair<int, SortKey> best_key;
  for (const RunConfig& run : RunsOf(problem, layout)) {
    const RecipePlace place = Place(source, recipe, run, speed, predictor);
    const auto key = KeyOf(place, run, objective);
    if (best && !(key < best_key)) continue;
    best = place;
    best_key = key;
  }
  return best.value();
}

}  // namespace

std::vector<RecipePlace> PlaceRecipes(const Problem& problem, Objective objective,
                                      Predictor& predictor) {
  std::vector<RecipePlace> places;
  if (problem.cluster.device == DeviceKind::kCpu) return places;
  const int64_t world = AllowedGpus(problem).back();
  for (const RecipeTable& table : kTables) {
    for (const Recipe& recipe : table.rows) {
      if (!IsOfKind(problem.cluster.profile, recipe.gpu)) continue;
      if (!SameShape(LoadModelConfig(recipe.model), problem.model)) continue;
      const std::string source = fmt::format("{}, on {} GPUs", table.source, recipe.gpus);
      ParallelConfig layout;
      try {
        layout = ParseLayout(recipe.layout, world);
      } catch (const UsageError& error) {
        places.push_back({.source = source, .layout = recipe.layout, .refused = error.what()});
        continue;
      }
      const auto& precisions = problem.precisions;
      const bool considered = std::find(precisions.begin(), precisions.end(),
                                        layout.numerics.precision) != precisions.end();
      if (!considered) continue;
      places.push_back(BestPlace(source, recipe, problem, layout, objective, predictor));
    }
  }
  return places;
}

nlohmann::json ToJson(const std::vector<RecipePlace>& places) {
  nlohmann::json json = nlohmann::json::array();
  for (const RecipePlace& each : places) {
    json.push_back({{"source", each.source},
                    {"layout", each.layout},
                    {"global_batch", each.global_batch},
                    {"refused", each.refused},
                    {"prediction", each.prediction ? ToJson(*each.prediction) : nlohmann::json()}});
  }
  return json;
}

std::vector<RecipePlace> RecipePlacesFromJson(const nlohmann::json& json,
                                              const std::string& where) {
  std::vector<RecipePlace> places;
  try {
    for (const nlohmann::json& each : json) {
      RecipePlace& place = places.emplace_back();
      each.at("source").get_to(place.source);
      each.at("layout").get_to(place.layout);
      place.global_batch = each.value("global_batch", int64_t{0});
      each.at("refused").get_to(place.refused);
      const nlohmann::json& prediction = each.at("prediction");
      if (!prediction.is_null()) place.prediction = PredictionFromJson(prediction, where);
    }
  } catch (const std::exception& error) {
    throw StorageError(fmt::format("{}: not the layouts of frameworks: {}", where, error.what()));
  }
  return places;
}

}  // namespace trimtab
