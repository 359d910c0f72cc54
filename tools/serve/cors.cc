#include "tools/serve/cors.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "tools/serve/routes.h"

namespace trimtab {
namespace {

constexpr char kDaySeconds[] = "86400";

}  // namespace

httplib::Headers CorsHeaders(const std::string& origin) {
  if (origin.empty()) return {};
  httplib::Headers headers = {{"Access-Control-Allow-Origin", origin},
                              {"Access-Control-Expose-Headers", "Retry-After, X-Trimtab-Ignored"}};
  if (origin != "*") headers.emplace("Vary", "Origin");
  return headers;
}

void AnswerPreflight(const httplib::Request& request, const std::string& origin,
                     httplib::Response& response) {
  const std::string methods = MethodsOf(request.path);
  response.status = 204;
  if (!methods.empty()) response.set_header("Allow", methods);
  if (origin.empty() || methods.empty()) return;
  response.set_header("Access-Control-Allow-Methods", methods);
  // All that a page asks for: clients of some languages add headers that nothing here reads.
  const std::string asked = request.get_header_value("Access-Control-Request-Headers");
  response.set_header("Access-Control-Allow-Headers",
                      asked.empty() ? "Authorization, Content-Type" : asked);
  response.set_header("Access-Control-Max-Age", kDaySeconds);
}

void RequireOrigin(const std::string& origin) {
  if (origin.empty() || origin == "*") return;
  const size_t host = origin.find("://");
  const bool good = host != std::string::npos && host + 3 < origin.size() &&
                    origin.find('/', host + 3) == std::string::npos &&
                    origin.find_first_of(" ,*\t\r\n") == std::string::npos;
  if (good) return;
  throw UsageError(fmt::format(
      "--cors-origin: '{}'; expected one origin, as https://chat.example:8443, or *", origin));
}

}  // namespace trimtab
