// RankMonitor: whether the other processes of a run live, and get on.
//
// A thread of its own in every process, beside the messages and without MPI: each rank beats once a
// second over a TCP connection to rank 0, and rank 0 beats back. A connection that closes is a
// process that died; silence is one that was stopped, or whose machine is gone; a rank that
// computes for an hour beats all the same. Each beat says what the rank waits for, so that rank 0
// can name who holds up a rank that has waited for longer than the limit.
//
// What is found reaches the rank's own thread at its next call. Where that does not come, because
// the rank computes, the monitor ends the process.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/comm/mpi/monitor_link.h"
#include "engine/comm/mpi/run_failure.h"

namespace trimtab {

/// How patient a run is.
struct MonitorLimits {
  std::chrono::seconds wait;     // $TRIMTAB_COMM_TIMEOUT_S (1800): how long a rank may wait
  std::chrono::seconds silence;  // $TRIMTAB_HEARTBEAT_TIMEOUT_S (10): after it a rank is lost
};
/// Throws UsageError.
MonitorLimits ReadMonitorLimits();

/// How the processes meet.
struct MonitorSetup {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the processes of this machine
  RankAddress address{};
  Socket socket{};  // of rank 0: it listens; of the others: connected to rank 0
};

class RankMonitor {
 public:
  RankMonitor(const MonitorLimits& limits, MonitorSetup setup);
  ~RankMonitor();
  RankMonitor(const RankMonitor&) = delete;
  RankMonitor& operator=(const RankMonitor&) = delete;

  // Of the rank's own thread:

  /// It calls something, so it gets on.
  void NoteCall();
  /// It waits from now on, in the call that `what` says: "calls barrier in the world group".
  void BeginWait(std::string what);
  void EndWait();
  /// While set, this rank's waits may take any time.
  void set_unlimited(bool unlimited);
  /// Why the run has failed, as far as the monitors know: a rank is lost or makes no progress.
  std::optional<RunFailure> failure() const;
  /// Whether a rank is gone, so that nobody may count on all of them any more.
  bool lost() const { return lost_; }
  /// Whether this process is to tell the user of a lost rank: true once. False: the monitor has
  /// done so, or another process does.
  bool ClaimTelling() { return setup_.rank == 0 && !told_.exchange(true); }
  /// From now on the end of this process is no failure.
  void Farewell() { farewell_ = true; }

 private:
  using Clock = std::chrono::steady_clock;

  /// Another rank, as this one hears of it: of rank 0 every other, of another rank only rank 0.
  struct Peer {
    int rank = -1;  // not known yet
    MonitorLink link;
    Clock::time_point heard;
    bool left = false;
    MonitorFrame state{};      // as of its last beat
    Clock::time_point beat{};  // when that came
  };

  void Run();
  void Accept();
  void Listen(Peer& peer);
  void Take(Peer& peer, const MonitorFrame& frame);
  void Beat();
  void LookForLostRanks(Clock::time_point now);
  void LookForStalledRanks(Clock::time_point now);
  /// Notes the failure, and at rank 0 tells all others.
  void Found(MonitorFrame::Kind kind, int rank, const std::string& what);
  void EndIfOverdue(Clock::time_point now);
  void SayFarewell();
  MonitorFrame OwnState();
  bool hub() const { return setup_.rank == 0; }

  MonitorSetup setup_;
  const MonitorLimits limits_;
  const bool tells_of_first_;  // speaks for its machine when rank 0 is lost
  const Clock::time_point born_;
  std::vector<Peer> peers_;
  Clock::time_point started_;  // later by the time in which this process stood still
  Clock::time_point judges_from_;
  Clock::time_point next_beat_;
  std::optional<Clock::time_point> stall_seen_;  // when some rank was seen to wait for too long

  std::atomic<int64_t> called_ms_{0};
  std::atomic<bool> unlimited_{false};
  std::atomic<bool> failed_{false};
  std::atomic<bool> lost_{false};
  std::atomic<bool> told_{false};
  std::atomic<bool> farewell_{false};
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  std::string waits_in_ TRIMTAB_GUARDED_BY(mutex_);  // empty: it does not wait
  Clock::time_point waits_since_ TRIMTAB_GUARDED_BY(mutex_);
  std::optional<RunFailure> failure_ TRIMTAB_GUARDED_BY(mutex_);
  Clock::time_point failed_at_ TRIMTAB_GUARDED_BY(mutex_);
  bool said_farewell_ = false;
  std::thread thread_;
};

}  // namespace trimtab
