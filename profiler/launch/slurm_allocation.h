// SlurmAllocation: nodes that a job holds, on which steps are started one after the other.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "profiler/launch/slurm_client.h"

namespace trimtab {

class SlurmAllocation {
 public:
  /// What asks for the job.
  struct Request {
    std::string name{};
    int64_t nodes = 1;
    std::vector<std::string> command{};
    /// The same with nodes that `command` leaves out, for when there are too few others, or too few
    /// of them in service; may be empty.
    std::vector<std::string> with_all_nodes{};
    double pending_limit_s = 0;  // how long it may wait for nodes; 0 = for ever
  };

  /// Takes over the job of this name and size that a killed driver left in the queue, or asks for
  /// one. Throws EnvironmentError.
  explicit SlurmAllocation(Request request);
  /// The job that this process runs in.
  explicit SlurmAllocation(std::string id) : id_(std::move(id)) {}
  /// Gives the nodes back, unless this process runs on them.
  ~SlurmAllocation();
  SlurmAllocation(const SlurmAllocation&) = delete;
  SlurmAllocation& operator=(const SlurmAllocation&) = delete;

  const std::string& id() const { return id_; }
  /// Whether steps can be started. Asks the controller less and less often while they cannot.
  /// Throws EnvironmentError when they never will: cancelled, held, waited for too long.
  bool Ready();
  /// Why not yet.
  const std::string& reason() const { return reason_; }
  /// Something ended that ran there: the controller is to be asked again. What it says now.
  JobPhase Refresh();
  /// Gives the nodes back now: no step of the job can be worked with.
  void GiveUp();
  /// The job is over; another one is needed.
  bool over() const { return over_; }

 private:
  using Clock = std::chrono::steady_clock;

  void Ask();
  void AskForAllNodes();
  void Take(const SlurmJob& job);
  void End(std::string why, JobPhase phase);
  [[noreturn]] void GiveUpNeverStarting(const SlurmJob& job);

  Request request_;
  std::string id_;
  bool owned_ = false;
  bool ready_ = false;
  bool over_ = false;
  JobPhase over_as_ = JobPhase::kUnknown;  // what that says of a step
  std::string reason_;
  int restarts_ = 0;  // of the job, when its nodes were last there
  std::optional<Clock::time_point> never_since_;
  Clock::time_point waits_since_ = Clock::now();
  Clock::time_point ask_at_ = Clock::now();
  std::chrono::duration<double> pause_{0.1};
};

}  // namespace trimtab
