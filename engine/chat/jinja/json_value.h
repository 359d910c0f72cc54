// JSON to values and back, as Python's json module writes it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "engine/chat/jinja/value.h"

namespace trimtab::jinja {

/// The value of `json`; its texts and keys have `marks`. Throws Failure for an integer that is
/// beyond 64 bits.
Value FromJson(const nlohmann::ordered_json& json, Marks marks);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent{};  // of a level; none: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

/// Writes as json.dumps does; strings keep their marks. Throws Failure for a value that JSON has
/// not.
Text ToJson(const Value& value, const JsonStyle& style);

}  // namespace trimtab::jinja
