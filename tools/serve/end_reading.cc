#include "tools/serve/end_reading.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

namespace trimtab {
namespace {

constexpr auto kPause = std::chrono::milliseconds(20);

/// The library tells of its listener alone, not of the connections that it has accepted.
std::vector<int> OpenFiles() {
  std::vector<int> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    files.push_back(std::atoi(entry.path().filename().c_str()));
  }
  return files;
}

/// The port at this end of a TCP socket; -1 of other files.
int PortOf(int file) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(file, reinterpret_cast<sockaddr*>(&address), &size) != 0) return -1;
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return -1;
}

bool Listens(int file) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  return ::getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

}  // namespace

void EndReading(int port, const std::atomic<bool>& finished) {
  for (; !finished; std::this_thread::sleep_for(kPause)) {
    for (const int file : OpenFiles()) {
      if (PortOf(file) == port && !Listens(file)) ::shutdown(file, SHUT_RD);
    }
  }
}

}  // namespace trimtab
