// JSON as answers carry it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trimtab {

/// JSON as text, whatever its strings hold.
std::string JsonText(const nlohmann::json& json);

/// {"error": {...}} as OpenAI writes it, with the line's end.
std::string ErrorBody(const std::string& message, const std::string& type);

/// An event of a stream: "data: {...}".
std::string EventOf(const nlohmann::json& data);

}  // namespace trimtab
