// In what two models differ, field by field.
#pragma once

#include <string>
#include <vector>

#include "engine/config/model_config.h"

namespace trimtab {

/// A field by its path in our model JSON, and its values as text ("nothing" at its default).
struct ModelDifference {
  std::string name;  // "hidden_size", "moe.num_experts"
  std::string found;
  std::string expected;
};

/// All fields that differ, by name. A width that no layer of either has makes no difference.
std::vector<ModelDifference> DifferencesOf(const ModelConfig& found, const ModelConfig& expected);

}  // namespace trimtab
