#include "engine/infer/replicas/replica_link.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "engine/base/error.h"
#include "engine/comm/mpi/mpi_communicator.h"
#include "engine/comm/mpi_launch.h"

namespace trimtab {
namespace {

constexpr int kGlanceMs = 100;

/// What the first rank of a replica says once it has connected.
struct Hello {
  std::array<char, 16> token;
  int32_t rank;
};

bool WaitBriefly(const Socket& socket, short events) {
  pollfd waiting = {socket.fd(), events, 0};
  return ::poll(&waiting, 1, kGlanceMs) == 1;
}

std::optional<Hello> TakeHello(const Socket& socket) {
  Hello hello{};
  const auto take = [&](int flags) {
    return ::recv(socket.fd(), &hello, sizeof(hello), flags | MSG_DONTWAIT) == sizeof(hello);
  };
  return take(MSG_PEEK) && take(0) ? std::optional(hello) : std::nullopt;
}

/// The connections of the first ranks of all replicas but that of `rank`, each of `ranks` ranks.
std::vector<Socket> AwaitFirstRanks(Rank& rank, const Socket& listener, const RankAddress& address,
                                    int ranks, size_t replicas) {
  std::vector<Socket> found(replicas - 1);
  std::vector<Socket> unknown;
  for (size_t missing = found.size(); missing > 0;) {
    if (!WaitBriefly(listener, POLLIN)) rank.CheckOthers();
    while (std::optional<Socket> socket = AcceptRank(listener)) {
      unknown.push_back(*std::move(socket));
    }
    for (Socket& each : unknown) {
      const std::optional<Hello> hello = TakeHello(each);
      if (!hello || hello->token != address.token) continue;
      found[static_cast<size_t>(hello->rank / ranks - 1)] = std::move(each);
      --missing;
    }
  }
  return found;
}

}  // namespace

std::vector<Socket> MeetReplicas(Rank& rank) {
  MpiWorld& world = MpiWorld::OfProcess();
  std::vector<int> everyone(static_cast<size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto all = MakeMpiCommunicator(world, GroupKind::kWorld, std::move(everyone));
  all->Barrier();
  const int ranks = rank.parallel().host->size();
  if (world.size() == ranks) return {};

  RankAddress address{};
  Socket listener;
  const bool first = world.rank() == 0;
  if (first) listener = ListenForRanks(FindMpiLaunch()->local_size == world.size(), address);
  BroadcastHostBytes(*all, std::as_writable_bytes(std::span(&address, 1)), 0);
  std::vector<Socket> links;
  if (first) {
    links =
        AwaitFirstRanks(rank, listener, address, ranks, static_cast<size_t>(world.size() / ranks));
  } else if (rank.index() == 0) {
    Socket& socket = links.emplace_back(ConnectToFirstRank(address, world.rank()));
    const Hello hello = {address.token, world.rank()};
    const ssize_t sent = ::send(socket.fd(), &hello, sizeof(hello), MSG_NOSIGNAL);
    TRIMTAB_ASSERT(sent == sizeof(hello), "a new connection takes {} bytes", sent);
  }
  all->Barrier();
  return links;
}

ReplicaLink::ReplicaLink(Socket socket, std::function<void()> check)
    : socket_(std::move(socket)), check_(std::move(check)) {}

void ReplicaLink::Await(short events) {
  if (!WaitBriefly(socket_, events)) check_();
}

void ReplicaLink::Send(std::string_view message) {
  const auto size = static_cast<int64_t>(message.size());
  std::string bytes(sizeof(size), '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  bytes += message;
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t sent =
        ::send(socket_.fd(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      rest.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      Await(POLLOUT);
    } else if (errno != EINTR) {
      return;
    }
  }
}

bool ReplicaLink::Fill(char* bytes, size_t count) {
  for (size_t have = 0; have < count;) {
    const ssize_t come = ::recv(socket_.fd(), bytes + have, count - have, MSG_DONTWAIT);
    if (come > 0) {
      have += static_cast<size_t>(come);
    } else if (come < 0 && errno == EAGAIN) {
      Await(POLLIN);
    } else if (come == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

std::optional<std::string> ReplicaLink::Receive() {
  int64_t size = 0;
  if (!Fill(reinterpret_cast<char*>(&size), sizeof(size))) return std::nullopt;
  std::string message(static_cast<size_t>(size), '\0');
  if (!Fill(message.data(), message.size())) return std::nullopt;
  return message;
}

}  // namespace trimtab
