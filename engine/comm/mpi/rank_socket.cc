#include "engine/comm/mpi/rank_socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr int kConnectMilliseconds = 3000;

[[noreturn]] void Fail(const char* call) {
  throw EnvironmentError(
      fmt::format("connections between ranks: {}: {}", call, std::strerror(errno)));
}

std::array<char, 40> BootId() {
  std::array<char, 40> id{};
  std::string text;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
  std::copy_n(text.begin(), std::min(text.size(), id.size()), id.begin());
  return id;
}

/// The addresses at which other machines may reach this one.
void FindAddresses(RankAddress& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) Fail("getifaddrs");
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in found{};
    std::memcpy(&found, each->ifa_addr, sizeof(found));
    if (ntohl(found.sin_addr.s_addr) >> 24 == 127) continue;
    if (address.count == RankAddress::kMostAddresses) break;
    address.addresses[static_cast<size_t>(address.count++)] = found.sin_addr.s_addr;
  }
  ::freeifaddrs(list);
}

sockaddr_in ToSocketAddress(uint32_t address, int port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_addr.s_addr = address;
  result.sin_port = htons(static_cast<uint16_t>(port));
  return result;
}

/// Small messages leave at once.
void SendAtOnce(const Socket& socket) {
  const int on = 1;
  if (::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) Fail("setsockopt");
}

Socket TryConnect(const sockaddr_in& address) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) Fail("socket");
  SendAtOnce(socket);
  const auto* plain = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(socket.fd(), plain, sizeof(address)) == 0) return socket;
  if (errno != EINPROGRESS) return {};
  pollfd waiting = {socket.fd(), POLLOUT, 0};
  if (::poll(&waiting, 1, kConnectMilliseconds) != 1) return {};
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return {};
  return socket;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Socket ListenForRanks(bool all_here, RankAddress& address) {
  address = {};
  address.boot = BootId();
  if (::getrandom(address.token.data(), address.token.size(), 0) < 0) Fail("getrandom");
  if (all_here) {
    address.addresses[0] = htonl(INADDR_LOOPBACK);
    address.count = 1;
  } else {
    FindAddresses(address);
  }
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) Fail("socket");
  sockaddr_in own = ToSocketAddress(htonl(all_here ? INADDR_LOOPBACK : INADDR_ANY), 0);
  auto* plain = reinterpret_cast<sockaddr*>(&own);
  socklen_t size = sizeof(own);
  if (::bind(socket.fd(), plain, size) != 0) Fail("bind");
  if (::listen(socket.fd(), SOMAXCONN) != 0) Fail("listen");
  if (::getsockname(socket.fd(), plain, &size) != 0) Fail("getsockname");
  address.port = ntohs(own.sin_port);
  return socket;
}

Socket ConnectToFirstRank(const RankAddress& address, int rank) {
  std::string tried;
  for (int i = 0; i < address.count; ++i) {
    const sockaddr_in other =
        ToSocketAddress(address.addresses[static_cast<size_t>(i)], address.port);
    Socket socket = TryConnect(other);
    if (socket.fd() >= 0) return socket;
    std::array<char, INET_ADDRSTRLEN> name{};
    ::inet_ntop(AF_INET, &other.sin_addr, name.data(), name.size());
    tried += fmt::format("{}{}:{}", tried.empty() ? "" : ", ", name.data(), address.port);
  }
  throw EnvironmentError(
      fmt::format("rank {} cannot reach rank 0, tried {}; expected TCP connections between the "
                  "machines of a run",
                  rank, tried.empty() ? "nothing: it has no IPv4 address" : tried));
}

bool IsHere(const RankAddress& address) { return address.boot == BootId(); }

std::optional<Socket> AcceptRank(const Socket& listener) {
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.fd() < 0) return std::nullopt;
  SendAtOnce(socket);
  return socket;
}

}  // namespace trimtab
