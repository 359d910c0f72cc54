// In what two models differ that weights depend on, field by field.
#pragma once

#include <string>
#include <vector>

#include "engine/config/model/model_config.h"

namespace trimtab {

/// A field by its path in our model JSON, and its values as text ("nothing" at its default).
struct ModelDifference {
  std::string name;  // "hidden_size", "moe.num_experts"
  std::string found;
  std::string expected;
};

/// All fields that differ, by name, but for what the same weights may have in two runs: the name,
/// what only training asks (initial weights, losses and capacity of experts), the padding of the
/// vocabulary, the length where there is no table of positions, and a width that no layer has.
std::vector<ModelDifference> DifferencesOf(const ModelConfig& found, const ModelConfig& expected);

}  // namespace trimtab
