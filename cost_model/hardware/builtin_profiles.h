// The built-in profiles and stacks inside the program; the build generates the .cc.
#pragma once

#include <span>

namespace trimtab {

/// A JSON file that the program carries with it: its name without ".json", and its text.
struct EmbeddedJson {
  const char* name;
  const char* json;
};

/// cost_model/hardware/profiles/*.json
std::span<const EmbeddedJson> ProfileFiles();
/// cost_model/hardware/stacks/*.json
std::span<const EmbeddedJson> StackFiles();

}  // namespace trimtab
