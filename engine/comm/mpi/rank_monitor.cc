#include "engine/comm/mpi/rank_monitor.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "engine/base/log.h"

namespace trimtab {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kBeat = seconds(1);
constexpr auto kTick = milliseconds(100);
// Longer between two looks, and it was this process that stood still.
constexpr auto kGap = seconds(3);
// How long the rank's own thread has to tell the user, and then to end the process.
constexpr auto kTellAfter = milliseconds(300);
constexpr auto kEndAfter = seconds(5);
constexpr size_t kListedRanks = 8;

seconds ReadSeconds(const char* name, int64_t least, int64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return seconds(otherwise);
  char* end = nullptr;
  const int64_t value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < least) {
    throw UsageError(
        fmt::format("{} is '{}'; expected a number of seconds from {} on", name, text, least));
  }
  return seconds(value);
}

int64_t Milliseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration_cast<milliseconds>(duration).count();
}

}  // namespace

MonitorLimits ReadMonitorLimits() {
  return {.wait = ReadSeconds("TRIMTAB_COMM_TIMEOUT_S", 1, 1800),
          .silence = ReadSeconds("TRIMTAB_HEARTBEAT_TIMEOUT_S", 3, 10)};
}

RankMonitor::RankMonitor(const MonitorLimits& limits, MonitorSetup setup)
    : setup_(std::move(setup)),
      limits_(limits),
      tells_of_first_(setup_.local_rank == (IsHere(setup_.address) ? 1 : 0)),
      born_(Clock::now()),
      started_(born_),
      judges_from_(born_),
      next_beat_(born_) {
  if (!hub()) {
    peers_.push_back({0, MonitorLink(std::move(setup_.socket)), started_});
    MonitorFrame hello = {.kind = MonitorFrame::kHello, .rank = setup_.rank};
    hello.SetText({setup_.address.token.begin(), setup_.address.token.end()});
    peers_[0].link.Send(hello);
  }
  // Signals are for the rank's own thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

RankMonitor::~RankMonitor() {
  stopping_ = true;
  thread_.join();
}

void RankMonitor::NoteCall() { called_ms_ = Milliseconds(Clock::now() - born_); }

void RankMonitor::BeginWait(std::string what) {
  const MutexLock lock(mutex_);
  waits_in_ = std::move(what);
  waits_since_ = Clock::now();
}

void RankMonitor::EndWait() {
  NoteCall();
  const MutexLock lock(mutex_);
  waits_in_.clear();
}

void RankMonitor::set_unlimited(bool unlimited) { unlimited_ = unlimited; }

std::optional<RunFailure> RankMonitor::failure() const {
  if (!failed_) return std::nullopt;
  const MutexLock lock(mutex_);
  return failure_;
}

void RankMonitor::Run() {
  Clock::time_point last = Clock::now();
  std::vector<pollfd> waiting;
  while (!stopping_) {
    waiting.clear();
    if (hub()) waiting.push_back({setup_.socket.fd(), POLLIN, 0});
    for (const Peer& peer : peers_) {
      if (!peer.link.closed()) waiting.push_back({peer.link.fd(), POLLIN, 0});
    }
    ::poll(waiting.data(), waiting.size(), static_cast<int>(kTick.count()));
    if (hub()) Accept();
    for (Peer& peer : peers_) Listen(peer);
    const Clock::time_point now = Clock::now();
    if (now - last > kGap) {
      for (Peer& peer : peers_) peer.heard += now - last;
      started_ += now - last;
      // The others may have given this rank up, and be ended themselves by now.
      judges_from_ = now + kGap;
    }
    last = now;
    LookForLostRanks(now);
    if (now >= next_beat_) Beat();
    if (hub()) LookForStalledRanks(now);
    EndIfOverdue(now);
    SayFarewell();
  }
  SayFarewell();
}

void RankMonitor::SayFarewell() {
  if (!farewell_ || said_farewell_) return;
  said_farewell_ = true;
  for (Peer& peer : peers_) peer.link.Send({.kind = MonitorFrame::kFarewell, .rank = setup_.rank});
}

void RankMonitor::Accept() {
  while (std::optional<Socket> socket = AcceptRank(setup_.socket)) {
    peers_.push_back({-1, MonitorLink(std::move(*socket)), Clock::now()});
  }
  std::erase_if(peers_, [](const Peer& peer) { return peer.rank < 0 && peer.link.closed(); });
}

void RankMonitor::Listen(Peer& peer) {
  while (const std::optional<MonitorFrame> frame = peer.link.Receive()) Take(peer, *frame);
}

void RankMonitor::Take(Peer& peer, const MonitorFrame& frame) {
  peer.heard = Clock::now();
  if (peer.rank < 0) {
    const auto& token = setup_.address.token;
    const bool known = frame.kind == MonitorFrame::kHello && frame.rank > 0 &&
                       frame.rank < setup_.size &&
                       std::equal(token.begin(), token.end(), frame.text.begin());
    if (known) peer.rank = frame.rank;
    return;
  }
  switch (frame.kind) {
    case MonitorFrame::kFarewell:
      peer.left = true;
      break;
    case MonitorFrame::kLost:
    case MonitorFrame::kStalled:
      if (!hub()) Found(static_cast<MonitorFrame::Kind>(frame.kind), frame.rank, frame.Text());
      break;
    default:
      peer.state = frame;
      peer.beat = peer.heard;
  }
}

MonitorFrame RankMonitor::OwnState() {
  MonitorFrame state = {.kind = MonitorFrame::kBeat, .rank = setup_.rank};
  const Clock::time_point now = Clock::now();
  state.idle_ms = Milliseconds(now - born_) - called_ms_;
  state.unlimited = unlimited_ ? 1 : 0;
  const MutexLock lock(mutex_);
  if (!waits_in_.empty()) {
    state.waiting_ms = Milliseconds(now - waits_since_);
    state.SetText(waits_in_);
  }
  return state;
}

void RankMonitor::Beat() {
  next_beat_ = Clock::now() + kBeat;
  const MonitorFrame state = OwnState();
  for (Peer& peer : peers_) {
    if (!peer.link.closed()) peer.link.Send(state);
  }
}

void RankMonitor::LookForLostRanks(Clock::time_point now) {
  if (failed_ || now < judges_from_) return;
  const auto died = [this](int rank) {
    Found(MonitorFrame::kLost, rank,
          fmt::format("rank {} has died: its process ended without a word", rank));
  };
  const auto is_silent = [this](int rank) {
    Found(
        MonitorFrame::kLost, rank,
        fmt::format("rank {} has been silent for {} s: its process was stopped, or its machine is "
                    "gone ($TRIMTAB_HEARTBEAT_TIMEOUT_S)",
                    rank, limits_.silence.count()));
  };
  std::vector<bool> present(static_cast<size_t>(setup_.size));
  for (const Peer& peer : peers_) {
    if (peer.rank < 0) continue;
    present[static_cast<size_t>(peer.rank)] = true;
    if (peer.left) continue;
    if (peer.link.closed()) return died(peer.rank);
    if (now - peer.heard > limits_.silence) return is_silent(peer.rank);
  }
  if (!hub() || now - started_ <= limits_.silence) return;
  for (int rank = 1; rank < setup_.size; ++rank) {
    if (!present[static_cast<size_t>(rank)]) return is_silent(rank);
  }
}

void RankMonitor::LookForStalledRanks(Clock::time_point now) {
  if (failed_) return;
  const MonitorFrame own = OwnState();
  std::vector<const MonitorFrame*> states = {&own};
  bool fresh = true;
  for (const Peer& peer : peers_) {
    if (peer.rank < 0 || peer.left) continue;
    states.push_back(&peer.state);
    fresh &= stall_seen_ && peer.beat > *stall_seen_;
  }
  const int64_t limit_ms = Milliseconds(limits_.wait);
  const auto waiting = std::find_if(states.begin(), states.end(), [&](const MonitorFrame* state) {
    return state->waiting_ms >= limit_ms && state->unlimited == 0;
  });
  if (waiting == states.end()) {
    stall_seen_.reset();
    return;
  }
  if (!stall_seen_) stall_seen_ = now;
  if (!fresh) return;  // what the others did a while ago accuses nobody
  const std::string limit =
      fmt::format("for longer than {} s ($TRIMTAB_COMM_TIMEOUT_S)", limits_.wait.count());
  for (const MonitorFrame* state : states) {
    if (state->waiting_ms >= 0 || state->idle_ms < limit_ms / 2) continue;
    return Found(
        MonitorFrame::kStalled, state->rank,
        fmt::format("rank {} makes no progress: it has called nothing for {} s, and rank {} "
                    "{}, {}",
                    state->rank, state->idle_ms / 1000, (*waiting)->rank, (*waiting)->Text(),
                    limit));
  }
  std::sort(states.begin(), states.end(),
            [](const MonitorFrame* a, const MonitorFrame* b) { return a->rank < b->rank; });
  std::string text = fmt::format("no progress {}:", limit);
  for (size_t i = 0; i < std::min(states.size(), kListedRanks); ++i) {
    text += fmt::format("{} rank {} {}", i == 0 ? "" : ",", states[i]->rank,
                        states[i]->waiting_ms < 0 ? "works" : states[i]->Text());
  }
  if (states.size() > kListedRanks) text += ", ...";
  Found(MonitorFrame::kStalled, (*waiting)->rank, text);
}

void RankMonitor::Found(MonitorFrame::Kind kind, int rank, const std::string& what) {
  {
    const MutexLock lock(mutex_);
    if (failure_) return;
    failure_ = RunFailure{.rank = rank, .message = what};
    failed_at_ = Clock::now();
  }
  lost_ = kind == MonitorFrame::kLost;
  failed_ = true;
  if (!hub()) return;
  MonitorFrame frame = {.kind = kind, .rank = rank};
  frame.SetText(what);
  for (Peer& peer : peers_) {
    // A rank that is lost need not hear of it; one that only stands still may wake up to.
    const bool lost = kind == MonitorFrame::kLost && peer.rank == rank;
    if (peer.rank >= 0 && !lost) peer.link.Send(frame);
  }
}

void RankMonitor::EndIfOverdue(Clock::time_point now) {
  if (!lost_) return;
  RunFailure failure;
  Clock::duration since{};
  {
    const MutexLock lock(mutex_);
    failure = *failure_;
    since = now - failed_at_;
  }
  const bool tells = hub() ? since > kTellAfter : failure.rank == 0 && tells_of_first_;
  if (tells && !told_.exchange(true)) LogLine(LogLevel::kError, failure.message);
  if (since > kEndAfter) ::_exit(static_cast<int>(failure.code));
}

}  // namespace trimtab
