// The rates of GPUs and engines that serve, inside the program; the build generates the .cc.
#pragma once

#include "cost_model/hardware/embedded_json.h"

namespace trimtab {

/// cost_model/serving/gpus/*.json
std::span<const EmbeddedJson> ServingGpuFiles();
/// cost_model/serving/engines/*.json
std::span<const EmbeddedJson> ServingEngineFiles();

}  // namespace trimtab
