#include "tools/serve/reply/json_text.h"

#include <nlohmann/json.hpp>

namespace trimtab {

std::string JsonText(const nlohmann::json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

std::string ErrorBody(const std::string& message, const std::string& type) {
  return JsonText(
             {{"error",
               {{"message", message}, {"type", type}, {"param", nullptr}, {"code", nullptr}}}}) +
         "\n";
}

std::string EventOf(const nlohmann::json& data) { return "data: " + JsonText(data) + "\n\n"; }

}  // namespace trimtab
