// TCP connections from the other ranks of a run to rank 0: for what MPI does not carry.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace trimtab {

/// A file descriptor, owned; -1: none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

/// Where rank 0 listens, as the others come to know it.
struct RankAddress {
  static constexpr int kMostAddresses = 8;

  std::array<char, 16> token;  // who knows it belongs to the run
  std::array<char, 40> boot;   // of rank 0's machine
  int32_t port;
  int32_t count;
  std::array<uint32_t, kMostAddresses> addresses;  // IPv4, in network order
};

/// Listens on a free port; on the loopback alone when all ranks are on this machine. Throws
/// EnvironmentError.
Socket ListenForRanks(bool all_here, RankAddress& address);
/// Connects to rank 0. Throws EnvironmentError, naming what was tried.
Socket ConnectToFirstRank(const RankAddress& address, int rank);
/// Whether rank 0 is on this machine.
bool IsHere(const RankAddress& address);
/// The next connection that waits at a listening socket.
std::optional<Socket> AcceptRank(const Socket& listener);

}  // namespace trimtab
