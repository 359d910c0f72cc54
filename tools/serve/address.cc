#include "tools/serve/address.h"

#include <charconv>
#include <string_view>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr int kMostPort = 65535;

}  // namespace

std::string HostOf(const std::string& text) {
  const bool brackets = text.starts_with('[') && text.ends_with(']');
  const std::string host = brackets ? text.substr(1, text.size() - 2) : text;
  if (!host.empty()) return host;
  throw UsageError("--host: no address; expected one of this machine, as 127.0.0.1 or ::1");
}

std::string UrlOf(const ServerAddress& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}{}:{}", kScheme, v6 ? "[" : "", address.host, v6 ? "]" : "",
                     address.port);
}

std::optional<ServerAddress> AddressOf(const std::string& url) {
  std::string_view rest = url;
  while (rest.ends_with('/')) rest.remove_suffix(1);
  if (!rest.starts_with(kScheme)) return std::nullopt;
  rest.remove_prefix(kScheme.size());
  const bool v6 = rest.starts_with('[');
  if (v6) rest.remove_prefix(1);
  const size_t end = rest.find(v6 ? ']' : ':');
  if (v6 && end == std::string_view::npos) return std::nullopt;
  ServerAddress address = {.host = std::string(rest.substr(0, end))};
  if (address.host.empty() || address.host.find('/') != std::string::npos) return std::nullopt;
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + (v6 ? 1 : 0));
  if (rest.empty()) return address;
  if (!rest.starts_with(':')) return std::nullopt;
  rest.remove_prefix(1);
  const char* const last = rest.data() + rest.size();
  const auto [read, error] = std::from_chars(rest.data(), last, address.port);
  const bool whole = error == std::errc() && read == last;
  if (!whole || address.port < 1 || address.port > kMostPort) return std::nullopt;
  return address;
}

}  // namespace trimtab
