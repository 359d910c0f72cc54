#include "engine/config/model/name_pattern.h"

#include <fnmatch.h>

#include <string>

namespace trimtab {

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  return ::fnmatch(std::string(pattern).c_str(), std::string(name).c_str(), FNM_NOESCAPE) == 0;
}

}  // namespace trimtab
