// The filters and tests of templates, by name.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat/jinja/value.h"

namespace trimtab::jinja {

using FilterFunction = Value (*)(Interpreter&, const Value&, const Arguments&);
using TestFunction = bool (*)(Interpreter&, const Value&, const Arguments&);
using FilterRow = std::pair<const char*, FilterFunction>;
using TestRow = std::pair<const char*, TestFunction>;

/// One table a file.
const std::vector<FilterRow>& TextFilters();
const std::vector<FilterRow>& NumberFilters();
const std::vector<FilterRow>& SequenceFilters();
const std::vector<FilterRow>& SelectingFilters();
const std::vector<TestRow>& AllTests();

/// Null where there is none.
FilterFunction FindFilter(std::string_view name);
TestFunction FindTest(std::string_view name);

/// The value that a path leads to, from `item`: "name", "name.0", or a number.
Value FollowPath(const Value& item, const Value& path);

}  // namespace trimtab::jinja
