// The profiles of cost_model/profiles/*.json inside the program; the build generates the .cc.
#pragma once

#include <span>

namespace trimtab {

struct BuiltinProfileText {
  const char* name;
  const char* json;
};
std::span<const BuiltinProfileText> BuiltinProfileTexts();

}  // namespace trimtab
