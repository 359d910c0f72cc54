// Recipes: layouts that frameworks publish for a model on some GPUs, to set beside what is found.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "search/predictor.h"
#include "search/space.h"

namespace trimtab {

/// A published layout in the search of another user's problem.
struct RecipePlace {
  std::string source;                      // who publishes it, and on how many GPUs
  std::string layout;                      // on the GPUs of the problem; as published where refused
  std::string refused;                     // why it does not run there; empty = it does
  std::optional<Prediction> prediction{};  // its closed form, where it runs
};

/// The published layouts for a model of the problem's shape on its kind of GPU, in precisions that
/// it considers, with as many replicas as its GPUs make. None on a cpu.
std::vector<RecipePlace> PlaceRecipes(const Problem& problem, Predictor& predictor);

nlohmann::json ToJson(const std::vector<RecipePlace>& places);
/// Throws StorageError naming `where`.
std::vector<RecipePlace> RecipePlacesFromJson(const nlohmann::json& json, const std::string& where);

}  // namespace trimtab
