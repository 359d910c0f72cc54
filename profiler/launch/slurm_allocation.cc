#include "profiler/launch/slurm_allocation.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr double kSubmitPatienceSeconds = 600;
constexpr std::chrono::duration<double> kLongestPause{30};
constexpr double kPauseGrowth = 1.3;
/// A controller that has just started says so of nodes that are on their way.
constexpr std::chrono::seconds kNeverConfirmed{2};
/// Slurm's reason where too few nodes of those that a job may have are in service.
constexpr char kNoSuchNodes[] = "ReqNodeNotAvail";
/// What it says to a job that may have too few nodes at all.
constexpr char kTooFewNodes[] = "Requested node configuration is not available";

}  // namespace

SlurmAllocation::SlurmAllocation(Request request) : request_(std::move(request)), owned_(true) {
  for (const SlurmJob& job : FindJobs(request_.name).value_or(std::vector<SlurmJob>())) {
    if (job.phase() == JobPhase::kEnding || job.phase() == JobPhase::kNotStarted) {
      CancelJobs({job.id});  // it may be on its way back into the queue, where nobody needs it
    } else if (job.nodes == request_.nodes && id_.empty()) {
      id_ = job.id;
    }
  }
  if (id_.empty()) Ask();
}

void SlurmAllocation::Ask() {
  try {
    id_ = SubmitJob(request_.command, request_.name, request_.nodes, kSubmitPatienceSeconds);
  } catch (const EnvironmentError& error) {
    const bool too_few = std::string_view(error.what()).find(kTooFewNodes) != std::string::npos;
    if (!too_few || request_.with_all_nodes.empty()) throw;
    AskForAllNodes();
  }
}

void SlurmAllocation::AskForAllNodes() {
  request_.command = std::exchange(request_.with_all_nodes, {});
  Ask();
}

SlurmAllocation::~SlurmAllocation() {
  try {
    if (owned_ && !over_) CancelJobs({id_});
  } catch (const EnvironmentError&) {
    // The job ends with its time limit.
  }
}

void SlurmAllocation::Take(const SlurmJob& job) {
  ready_ = false;
  if (job.phase() != JobPhase::kNeverStarts) never_since_.reset();
  switch (job.phase()) {
    case JobPhase::kRunning:
      ready_ = true;
      restarts_ = job.restarts;
      reason_.clear();
      return;
    case JobPhase::kNeverStarts:
      if (!never_since_) never_since_ = Clock::now();
      if (!request_.with_all_nodes.empty()) {
        CancelJobs({id_});
        never_since_.reset();
        return AskForAllNodes();
      }
      if (Clock::now() - *never_since_ >= kNeverConfirmed) GiveUpNeverStarting(job);
      reason_ = fmt::format("job {} is {} ({})", id_, job.state, job.reason);
      return;
    case JobPhase::kWaiting:
      if (!request_.with_all_nodes.empty() && job.reason.starts_with(kNoSuchNodes)) {
        CancelJobs({id_});
        AskForAllNodes();
        reason_ = fmt::format("job {} is asked for, also of nodes that were slow", id_);
        return;
      }
      [[fallthrough]];
    case JobPhase::kEnding:  // perhaps only to begin again
    case JobPhase::kUnknown:
      reason_ = fmt::format("job {} is {} ({})", id_, job.state, job.reason);
      return;
    case JobPhase::kCancelled:
      over_ = true;
      throw EnvironmentError(
          fmt::format("job {} was cancelled, and not by this program; --resume asks anew", id_));
    case JobPhase::kHeld:
      throw EnvironmentError(fmt::format("job {} is held ({}: {}); scontrol release {}", id_,
                                         job.state, job.reason, id_));
    case JobPhase::kNotStarted:
      CancelJobs({id_});
      return End(fmt::format("job {} could not be started ({})", id_, job.reason),
                 JobPhase::kNodeLost);
    default:
      End(fmt::format("job {} is {}", id_, job.state), job.phase());
  }
}

void SlurmAllocation::GiveUpNeverStarting(const SlurmJob& job) {
  if (owned_) CancelJobs({id_});
  End(fmt::format("job {} never starts", id_), JobPhase::kNeverStarts);
  throw EnvironmentError(
      fmt::format("job {} can never start: Slurm says {}; it was cancelled; --resume goes on with "
                  "other --launcher-options",
                  id_, job.reason));
}

bool SlurmAllocation::Ready() {
  if (ready_ || over_ || Clock::now() < ask_at_) return ready_;
  Refresh();
  if (ready_ || over_) return ready_;
  const std::chrono::duration<double> waited = Clock::now() - waits_since_;
  if (request_.pending_limit_s > 0 && waited.count() >= request_.pending_limit_s) {
    throw EnvironmentError(
        fmt::format("{}: no nodes within pending-limit={}", reason_, request_.pending_limit_s));
  }
  ask_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(pause_);
  pause_ = std::min(pause_ * kPauseGrowth, kLongestPause);
  return false;
}

void SlurmAllocation::GiveUp() {
  if (owned_ && !over_) CancelJobs({id_});
  End(fmt::format("job {} was given up", id_), JobPhase::kNodeLost);
}

void SlurmAllocation::End(std::string why, JobPhase phase) {
  ready_ = false;
  over_ = true;
  over_as_ = phase;
  reason_ = std::move(why);
}

JobPhase SlurmAllocation::Refresh() {
  if (over_) return over_as_;
  if (ready_) {
    waits_since_ = ask_at_ = Clock::now();
    pause_ = std::chrono::duration<double>(0.1);
  }
  bool answered = false;
  const bool was_ready = ready_;
  const int restarts = restarts_;
  const std::optional<SlurmJob> job = ShowJob(id_, answered);
  if (job) {
    Take(*job);
    // It was preempted, and runs again already: what ran there is gone.
    if (was_ready && ready_ && job->restarts != restarts) return JobPhase::kPreempted;
    return over_ ? over_as_ : job->phase();
  }
  if (answered) {
    End(fmt::format("job {} is gone", id_), JobPhase::kNodeLost);
    return over_as_;
  }
  ready_ = false;
  reason_ = "Slurm's controller does not answer";
  return JobPhase::kUnknown;
}

}  // namespace trimtab
