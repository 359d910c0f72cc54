// Rendering a template for a test.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/chat/jinja/json_value.h"
#include "engine/chat/jinja/template.h"

namespace trimtab::jinja {

struct Outcome {
  Text text;
  std::string error;  // empty: none
};

/// Renders `source`, called "t" in messages, at 12:30 on 26 July 2024 UTC. What `context` says is
/// input.
inline Outcome RenderWith(const std::string& source, const nlohmann::ordered_json& context) {
  constexpr std::time_t kNow = 1721997000;
  try {
    Entries variables;
    for (const auto& [name, value] : context.items()) {
      variables.emplace_back(Value(name), FromJson(value, kInput));
    }
    return {Template(source, "t").Render(variables, kNow), ""};
  } catch (const Error& error) {
    return {Text(), error.what()};
  }
}

}  // namespace trimtab::jinja
