// ReplicaLink: what carries requests and answers between replicas that are processes. MPI belongs
// to the threads of the ranks; this is a TCP connection of whoever asks and answers, from the first
// rank of a replica to rank 0.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/mpi/rank_socket.h"
#include "engine/runtime/ranks.h"

namespace trimtab {

/// Every rank of a run that is processes calls it together, when it is ready; returns when all are.
/// On rank 0 it returns a connection to the first rank of every other replica, in order; on these,
/// one to rank 0; elsewhere, none. Throws EnvironmentError where no connection comes about.
std::vector<Socket> MeetReplicas(Rank& rank);

/// Messages over such a connection, in order. It ends with the object.
class ReplicaLink {
 public:
  /// `check` is called now and then while the link waits, and may throw, which ends that.
  ReplicaLink(Socket socket, std::function<void()> check);

  /// That the other end is gone shows when it is asked for something.
  void Send(std::string_view message);
  /// The next message; nullopt where the other end is gone.
  std::optional<std::string> Receive();

 private:
  /// Whether so many bytes have come.
  bool Fill(char* bytes, size_t count);
  /// Until more can be sent or has come, as `events` of poll says.
  void Await(short events);

  Socket socket_;
  std::function<void()> check_;
};

}  // namespace trimtab
