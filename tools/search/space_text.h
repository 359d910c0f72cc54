// A space for people, and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "search/space/space_description.h"

namespace trimtab {

std::string SpaceText(const SpaceDescription& space, bool bold);
nlohmann::json SpaceJson(const SpaceDescription& space);

}  // namespace trimtab
