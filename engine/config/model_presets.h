// The built-in models, as data.
#pragma once

#include <span>

#include "engine/config/model_config.h"

namespace trimtab {

/// Every preset, in the order `trimtab models` lists them.
std::span<const ModelConfig> ModelPresets();

}  // namespace trimtab
