// The methods of strings and containers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/chat/jinja/value.h"

namespace trimtab::jinja {

using MethodFunction = Value (*)(const Value& self, const Arguments&);
using MethodRow = std::pair<const char*, MethodFunction>;

const std::vector<MethodRow>& StringMethods();

}  // namespace trimtab::jinja
