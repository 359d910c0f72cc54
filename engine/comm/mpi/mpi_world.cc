#include "engine/comm/mpi/mpi_world.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "engine/base/log.h"
#include "engine/comm/mpi/exchange_rounds.h"
#include "engine/comm/mpi/monitor_link.h"
#include "engine/comm/mpi_launch.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHeaderTag = 1;
constexpr int kDataTag = 2;
constexpr int kSetupTag = 3;
// A rank that waits gives its core away: the one it waits for may need it.
constexpr auto kLongWait = std::chrono::milliseconds(2);
constexpr auto kSleep = std::chrono::microseconds(50);
// A wait that goes on, as of ranks that are parked between visits, is looked at ever more rarely:
// it takes no core, and ends at most a hundredth later.
constexpr auto kLongestSleep = std::chrono::milliseconds(10);
constexpr int kSleepsOfWait = 100;
constexpr int kPollsPerNotice = 16;
constexpr auto kTimeToTell = std::chrono::seconds(2);

/// Tells the monitor of a wait for as long as it lives, once it has become long.
class Waiting {
 public:
  explicit Waiting(RankMonitor* monitor) : monitor_(monitor) {}
  ~Waiting() {
    if (told_) monitor_->EndWait();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  void Tell(GroupKind group, const CommCall& call) {
    if (told_ || monitor_ == nullptr) return;
    told_ = true;
    monitor_->BeginWait(fmt::format("calls {} in the {} group", call.Describe(), Name(group)));
  }

 private:
  RankMonitor* monitor_;
  bool told_ = false;
};

/// Of a RunFailure, before its message.
struct NoticeHeader {
  int32_t code;
  int32_t out_of_memory;
  int32_t consequence;
  int32_t rank;
};

std::string ToNotice(const RunFailure& failure) {
  const NoticeHeader header = {static_cast<int32_t>(failure.code), failure.out_of_memory,
                               failure.consequence, failure.rank};
  std::string text(sizeof(header), '\0');
  std::memcpy(text.data(), &header, sizeof(header));
  return text + failure.message;
}

RunFailure FromNotice(const std::string& text) {
  NoticeHeader header{};
  TRIMTAB_ASSERT(text.size() >= sizeof(header), "a notice of {} bytes", text.size());
  std::memcpy(&header, text.data(), sizeof(header));
  return {.code = static_cast<ExitCode>(header.code),
          .out_of_memory = header.out_of_memory != 0,
          .consequence = header.consequence != 0,
          .rank = header.rank,
          .message = text.substr(sizeof(header))};
}

}  // namespace

MpiWorld::MpiWorld(std::unique_ptr<MpiTransport> transport, int local_rank, int local_size)
    : transport_(std::move(transport)),
      batch_(transport_->NewBatch()),
      failures_(static_cast<size_t>(transport_->size())),
      finished_(static_cast<size_t>(transport_->size())) {
  const MonitorLimits limits = ReadMonitorLimits();
  if (size() > 1) StartMonitor(limits, local_rank, local_size);
}

MpiWorld::~MpiWorld() {
  if (monitor_ == nullptr) return;
  if (!running_ && !monitor_->lost()) {
    monitor_->Farewell();
    transport_.reset();
    return;
  }
  // MPI ends in good order only with all ranks. Rank 0 gets the time to say why.
  if (rank() != 0) std::this_thread::sleep_for(kTimeToTell);
  transport_->AbortAll(static_cast<int>(ExitCode::kInternal));
}

MpiWorld& MpiWorld::OfProcess() {
  const std::optional<MpiLaunch> launch = FindMpiLaunch();
  if (!launch) throw EnvironmentError("neither mpirun nor srun started this process");
  static MpiWorld world(
      [&launch] {
        auto transport = StartMpi();
        if (transport->rank() == launch->rank && transport->size() == launch->size) {
          return transport;
        }
        throw EnvironmentError(fmt::format(
            "{} started this process as rank {} of {}, but MPI takes it for rank {} of {}; "
            "expected the {} of the MPI library that is loaded",
            launch->launcher, launch->rank, launch->size, transport->rank(), transport->size(),
            launch->launcher));
      }(),
      launch->local_rank, launch->local_size);
  return world;
}

void MpiWorld::StartMonitor(const MonitorLimits& limits, int local_rank, int local_size) {
  MonitorSetup setup = {.rank = rank(), .size = size(), .local_rank = local_rank};
  try {
    if (rank() == 0) {
      setup.socket = ListenForRanks(local_size == size(), setup.address);
      for (int peer = 1; peer < size(); ++peer) {
        transport_->BeginSend(batch_, peer, kSetupTag, &setup.address, sizeof(setup.address));
      }
    } else {
      transport_->BeginReceive(batch_, 0, kSetupTag, &setup.address, sizeof(setup.address));
    }
    while (!transport_->Poll(batch_)) std::this_thread::sleep_for(kSleep);
    if (rank() != 0) setup.socket = ConnectToFirstRank(setup.address, rank());
    monitor_ = std::make_unique<RankMonitor>(limits, std::move(setup));
  } catch (const Error& error) {
    // The others wait for this rank, and cannot know.
    LogLine(LogLevel::kError, error.what());
    transport_->AbortAll(static_cast<int>(error.code()));
  }
}

void MpiWorld::BeginSend(const Place& place, int peer, int tag, const void* data, int64_t bytes) {
  ++requests_[static_cast<size_t>(place.group)];
  transport_->BeginSend(batch_, peer, tag, data, bytes);
}

void MpiWorld::BeginReceive(const Place& place, int peer, int tag, void* data, int64_t bytes) {
  ++requests_[static_cast<size_t>(place.group)];
  transport_->BeginReceive(batch_, peer, tag, data, bytes);
}

// A rank that comes through the first k rounds has compared its call, itself or through others,
// with those of the 2^k - 1 ranks before it: a rank sends in a round only if all that it compared
// was equal. So no rank returns unless all calls are.
void MpiWorld::Agree(const Place& place, const CommCall& call) {
  ThrowIfFailed();
  const int size = static_cast<int>(place.members.size());
  own_header_ = MakeCallHeader(place.group, size, place.rank, call);
  headers_.resize(1);
  for (const DisseminationRound& round : DisseminationRounds(place.rank, size)) {
    BeginReceive(place, place.members[static_cast<size_t>(round.from)], kHeaderTag, headers_.data(),
                 sizeof(CallHeader));
    BeginSend(place, place.members[static_cast<size_t>(round.to)], kHeaderTag, &own_header_,
              sizeof(CallHeader));
    Await(batch_, place, call);
    CheckFits(place, call, round.from, headers_.front());
  }
}

void MpiWorld::CheckFits(const Place& place, const CommCall& call, int peer,
                         const CallHeader& theirs) const {
  const int size = static_cast<int>(place.members.size());
  const CommCall other = theirs.Call();
  const auto group = static_cast<GroupKind>(theirs.group);
  if (group != place.group || theirs.size != size || theirs.finished != 0) {
    const std::string what = theirs.finished != 0 ? "has finished"
                                                  : fmt::format("calls {} in the {} group",
                                                                other.Describe(), Name(group));
    throw Error(ExitCode::kInternal, fmt::format("rank {} calls {} in the {} group, but rank {} {}",
                                                 rank(), call.Describe(), Name(place.group),
                                                 place.members[static_cast<size_t>(peer)], what));
  }
  const bool message = call.kind == CollectiveKind::kSend || call.kind == CollectiveKind::kRecv;
  if (message ? call.Completes(other, peer, place.rank) : call.Matches(other)) return;
  throw Error(ExitCode::kInternal,
              place.rank < peer
                  ? DescribeMismatch(place.group, size, place.rank, call, peer, other)
                  : DescribeMismatch(place.group, size, peer, other, place.rank, call));
}

void MpiWorld::Move(const Place& place, const CommCall& call, std::span<const Transfer> transfers) {
  for (const Transfer& transfer : transfers) {
    if (transfer.receive_bytes == 0) continue;
    BeginReceive(place, transfer.peer, kDataTag, transfer.receive, transfer.receive_bytes);
  }
  for (const Transfer& transfer : transfers) {
    if (transfer.send_bytes == 0) continue;
    BeginSend(place, transfer.peer, kDataTag, transfer.send, transfer.send_bytes);
  }
  Await(batch_, place, call);
}

void MpiWorld::Await(int batch, const Place& place, const CommCall& call, int partner) {
  NoteCall();
  Waiting waiting(monitor_.get());
  const Clock::time_point begin = Clock::now();
  bool long_wait = false;
  try {
    Clock::duration waited{};
    for (int polls = 1; !transport_->Poll(batch); ++polls) {
      if (long_wait || polls % kPollsPerNotice == 0) {
        ThrowIfFailed();
        if (partner >= 0 && finished_[static_cast<size_t>(partner)] > runs_finished_) {
          throw Error(ExitCode::kInternal,
                      fmt::format("rank {} calls {} in the {} group, but rank {} has finished",
                                  rank(), call.Describe(), Name(place.group), partner));
        }
        waited = Clock::now() - begin;
        long_wait = waited > kLongWait;
      }
      if (!long_wait) {
        sched_yield();
        continue;
      }
      waiting.Tell(place.group, call);
      std::this_thread::sleep_for(
          std::clamp<Clock::duration>(waited / kSleepsOfWait, kSleep, kLongestSleep));
    }
  } catch (...) {
    transport_->Cancel(batch);
    throw;
  }
}

void MpiWorld::Keep(std::shared_ptr<const void> memory) {
  // Never destroyed: the devices that the memory came from end before the process does.
  static auto* const kept = new std::vector<std::shared_ptr<const void>>;
  kept->push_back(std::move(memory));
}

void MpiWorld::TakeNotices() {
  while (const std::optional<std::string> notice = transport_->TakeNotice()) {
    // The first bytes say who sent it; what it tells may be another rank's failure.
    int32_t sender = 0;
    TRIMTAB_ASSERT(notice->size() >= sizeof(sender), "a notice of {} bytes", notice->size());
    std::memcpy(&sender, notice->data(), sizeof(sender));
    TRIMTAB_ASSERT(sender >= 0 && sender < size(), "a notice from rank {}", sender);
    if (notice->size() == sizeof(sender)) {
      ++finished_[static_cast<size_t>(sender)];
    } else {
      failures_[static_cast<size_t>(sender)] = FromNotice(notice->substr(sizeof(sender)));
    }
  }
}

void MpiWorld::ThrowIfTold() {
  NoteCall();
  ThrowNotices();
}

void MpiWorld::ThrowNotices() {
  TakeNotices();
  for (const std::optional<RunFailure>& failure : failures_) {
    if (failure) throw CommError(failure->message);
  }
}

void MpiWorld::ThrowIfFailed() {
  ThrowNotices();
  if (monitor_ == nullptr) return;
  if (const auto failure = monitor_->failure()) throw CommError(failure->message);
}

void MpiWorld::BeginDeviceWait() {
  if (monitor_) monitor_->BeginWait("waits for its device");
}

void MpiWorld::EndDeviceWait() {
  if (monitor_) monitor_->EndWait();
}

void MpiWorld::Fail(const RunFailure& failure) {
  std::optional<RunFailure>& mine = failures_[static_cast<size_t>(rank())];
  if (mine) return;
  mine = failure;
  // Of a lost rank the others know, and it takes no notice.
  if (monitor_ == nullptr || !monitor_->lost()) SendNotices(ToNotice(failure));
}

void MpiWorld::SendNotices(const std::string& text) {
  const int32_t sender = rank();
  std::string notice(sizeof(sender), '\0');
  std::memcpy(notice.data(), &sender, sizeof(sender));
  notice += text;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) transport_->SendNotice(peer, notice);
  }
}

RunFailure MpiWorld::AgreeOnFailure(std::chrono::milliseconds patience) {
  running_ = false;
  const Clock::time_point end = Clock::now() + patience;
  const auto first = [this](bool consequence) -> const RunFailure* {
    for (const std::optional<RunFailure>& each : failures_) {
      if (each && each->consequence == consequence) return &*each;
    }
    return nullptr;
  };
  const auto best = [&] { return *(first(false) != nullptr ? first(false) : first(true)); };
  for (;;) {
    TakeNotices();
    int missing = -1;
    for (int peer = 0; peer < size(); ++peer) {
      if (!failures_[static_cast<size_t>(peer)]) missing = peer;
    }
    if (missing < 0) return best();
    if (monitor_->lost()) {
      const RunFailure failure = first(false) != nullptr ? best() : *monitor_->failure();
      if (rank() == 0 && !monitor_->ClaimTelling()) {
        transport_->AbortAll(static_cast<int>(failure.code));  // the monitor has told the user
      }
      return failure;
    }
    if (Clock::now() >= end) {
      const RunFailure failure = best();
      LogLine(LogLevel::kError, fmt::format("{}; rank {} does not answer, so all are ended",
                                            failure.message, missing));
      transport_->AbortAll(static_cast<int>(failure.code));
    }
    std::this_thread::sleep_for(kSleep);
  }
}

// All ranks exchange headers here, once a run: a rank that still waits for this one in some group
// learns at once that it has finished.
void MpiWorld::Finish() {
  std::vector<int> everyone(static_cast<size_t>(size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const Place place = {GroupKind::kWorld, rank(), everyone};
  ThrowIfFailed();
  SendNotices("");
  own_header_ = MakeCallHeader(place.group, size(), rank(), {});
  own_header_.finished = 1;
  headers_.resize(everyone.size());
  for (const int peer : everyone) {
    if (peer == rank()) continue;
    BeginReceive(place, peer, kHeaderTag, &headers_[static_cast<size_t>(peer)], sizeof(CallHeader));
    BeginSend(place, peer, kHeaderTag, &own_header_, sizeof(CallHeader));
  }
  Await(batch_, place, {});
  for (const int peer : everyone) {
    const CallHeader& other = headers_[static_cast<size_t>(peer)];
    if (peer == rank() || other.finished != 0) continue;
    throw Error(
        ExitCode::kInternal,
        fmt::format("rank {} calls {} in the {} group, but rank {} has finished", peer,
                    other.Call().Describe(), Name(static_cast<GroupKind>(other.group)), rank()));
  }
  // The notices are on their way, and of no use to a later run of these processes.
  ++finished_[static_cast<size_t>(rank())];
  while (*std::min_element(finished_.begin(), finished_.end()) == runs_finished_) {
    ThrowIfFailed();
    sched_yield();
  }
  ++runs_finished_;
  running_ = false;
}

}  // namespace trimtab
