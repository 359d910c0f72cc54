#include "engine/chat/jinja/arguments.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"

namespace trimtab::jinja {

Matched::Matched(std::string function, const Arguments& arguments,
                 std::initializer_list<const char*> names)
    : function_(std::move(function)), names_(names), values_(names.size()) {
  if (arguments.positional.size() > names_.size()) {
    throw Failure(fmt::format("{}() takes at most {} arguments, got {}", function_, names_.size(),
                              arguments.positional.size()));
  }
  std::ranges::copy(arguments.positional, values_.begin());
  for (const auto& [name, value] : arguments.keywords) {
    const auto found = std::ranges::find(names_, std::string_view(name),
                                         [](const char* each) { return std::string_view(each); });
    if (found == names_.end()) {
      throw Failure(fmt::format("{}() got an unexpected keyword argument '{}'", function_, name));
    }
    std::optional<Value>& place = values_[static_cast<size_t>(found - names_.begin())];
    if (place) {
      throw Failure(fmt::format("{}() got two values for argument '{}'", function_, name));
    }
    place = value;
  }
}

const Value& Matched::Get(size_t place) const {
  if (!values_[place]) {
    throw Failure(fmt::format("{}() misses its argument '{}'", function_, names_[place]));
  }
  return *values_[place];
}

Value Matched::GetOr(size_t place, Value if_missing) const {
  return values_[place] ? *values_[place] : std::move(if_missing);
}

int64_t Matched::Integer(size_t place, int64_t if_missing) const {
  if (!values_[place] || values_[place]->is_none()) return if_missing;
  const Value& value = *values_[place];
  RequireDefined(value);
  if (value.is_integer() || value.is_boolean()) return value.integer();
  throw Failure(
      fmt::format("{}(): '{}' must be an integer, not {}", function_, names_[place], value.type()));
}

bool Matched::Boolean(size_t place, bool if_missing) const {
  return values_[place] ? Truth(*values_[place]) : if_missing;
}

std::optional<Text> Matched::TextOf(size_t place) const {
  if (!values_[place] || values_[place]->is_none()) return std::nullopt;
  return RequiredText(place);
}

Text Matched::RequiredText(size_t place) const {
  const Value& value = Get(place);
  RequireDefined(value);
  if (value.is_string()) return value.text();
  throw Failure(
      fmt::format("{}(): '{}' must be str, not {}", function_, names_[place], value.type()));
}

}  // namespace trimtab::jinja
