// The profiles of cost_model/profiles/*.json inside the program; the build generates the .cc.
#pragma once

#include <span>

namespace trimtab {

struct BuiltinProfileText {
  const char* name;
  const char* json;
};
std::span<const BuiltinProfileText> BuiltinProfileTexts();
/// The same of cost_model/stacks/*.json.
std::span<const BuiltinProfileText> BuiltinStackTexts();
/// The same of cost_model/serving_gpus/*.json.
std::span<const BuiltinProfileText> BuiltinServingGpuTexts();
/// The same of cost_model/serving_engines/*.json.
std::span<const BuiltinProfileText> BuiltinServingEngineTexts();

}  // namespace trimtab
