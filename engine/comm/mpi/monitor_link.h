// MonitorLink: a TCP connection that carries the heartbeats between rank 0 and one other rank.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/comm/mpi/rank_socket.h"

namespace trimtab {

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
