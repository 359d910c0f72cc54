// Addresses of servers, as flags and URLs write them.
#pragma once

#include <optional>
#include <string>

namespace trimtab {

struct ServerAddress {
  std::string host;  // a name, or an address without brackets: "127.0.0.1", "::1"
  int port = 80;
};

/// "127.0.0.1", "::1" or "[::1]" as a host. Throws UsageError, naming --host, where it is empty.
std::string HostOf(const std::string& text);

/// "http://127.0.0.1:8000", "http://[::1]:8000".
std::string UrlOf(const ServerAddress& address);

/// The address in such a URL, which may end with a slash; nullopt where it is none, or has a path.
std::optional<ServerAddress> AddressOf(const std::string& url);

}  // namespace trimtab
