// Recipes: layouts that frameworks publish for a model on some GPUs, to set beside what is found.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "search/space/objective.h"
#include "search/space/predictor.h"
#include "search/space/space.h"

namespace trimtab {

/// A published layout in the search of another user's problem.
struct RecipePlace {
  std::string source;                      // who publishes it, and on how many GPUs
  std::string layout;                      // on the GPUs of the problem; as published where refused
  int64_t global_batch = 0;                // 0 = a study of an older version does not say
  std::string refused;                     // why it does not run there; empty = it does
  std::optional<Prediction> prediction{};  // its closed form, where it runs
  /// How much worse its score is than that of what is recommended, closed form against closed form:
  /// 0.03 = 3 %. Not stored: known once something is recommended. None where it does not run.
  std::optional<double> extra_cost{};
};

/// The published layouts for a model of the problem's shape on its kind of GPU, in precisions that
/// it considers, with as many replicas as its GPUs make; with that of its global batches and
/// optimizer states that is best by `objective`, for none is published. None on a cpu.
std::vector<RecipePlace> PlaceRecipes(const Problem& problem, Objective objective,
                                      Predictor& predictor);

nlohmann::json ToJson(const std::vector<RecipePlace>& places);
/// Throws StorageError naming `where`.
std::vector<RecipePlace> RecipePlacesFromJson(const nlohmann::json& json, const std::string& where);

}  // namespace trimtab
