// The built-in profiles and stacks inside the program; the build generates the .cc.
#pragma once

#include "cost_model/hardware/embedded_json.h"

namespace trimtab {

/// cost_model/hardware/profiles/*.json
std::span<const EmbeddedJson> ProfileFiles();
/// cost_model/hardware/stacks/*.json
std::span<const EmbeddedJson> StackFiles();

}  // namespace trimtab
