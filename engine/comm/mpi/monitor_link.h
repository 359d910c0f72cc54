// MonitorLink: a TCP connection that carries the heartbeats between rank 0 and one other rank.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

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
struct MonitorAddress {
  static constexpr int kMostAddresses = 8;

  std::array<char, 16> token;  // who knows it belongs to the run
  std::array<char, 40> boot;   // of rank 0's machine
  int32_t port;
  int32_t count;
  std::array<uint32_t, kMostAddresses> addresses;  // IPv4, in network order
};

/// What a rank says of itself, or rank 0 of the run.
struct MonitorFrame {
  enum Kind : int32_t { kHello, kBeat, kFarewell, kLost, kStalled };

  int32_t kind = kBeat;
  int32_t rank = 0;         // who is meant
  int64_t waiting_ms = -1;  // in the call that `text` describes; -1: it does not wait
  int64_t idle_ms = 0;      // since it last called anything
  int32_t unlimited = 0;    // its waits may take any time
  std::array<char, 996> text{};

  void SetText(const std::string& value);
  std::string Text() const;
};
static_assert(sizeof(MonitorFrame) == 1024, "sent as it is");

/// Listens on a free port; on the loopback alone when all ranks are on this machine. Throws
/// EnvironmentError.
Socket ListenForRanks(bool all_here, MonitorAddress& address);
/// Connects to rank 0. Throws EnvironmentError, naming what was tried.
Socket ConnectToFirstRank(const MonitorAddress& address, int rank);
/// Whether rank 0 is on this machine.
bool IsHere(const MonitorAddress& address);
/// The next connection that waits at a listening socket.
std::optional<Socket> AcceptRank(const Socket& listener);

/// Frames over a connection; never blocks.
class MonitorLink {
 public:
  explicit MonitorLink(Socket socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.fd(); }
  /// Sends the frame, or keeps it until the other end reads. A beat that would have to be kept is
  /// dropped.
  void Send(const MonitorFrame& frame);
  /// The next frame that has come, if any.
  std::optional<MonitorFrame> Receive();
  /// Whether the other end is gone and nothing is left to receive.
  bool closed() const { return closed_; }

 private:
  void Flush();

  Socket socket_;
  std::string out_;
  std::string in_;
  bool closed_ = false;
};

}  // namespace trimtab
