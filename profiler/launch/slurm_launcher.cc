// Slurm: a job holds the nodes, and every run is a step on them.
//
// Runs that take equally many nodes share one job; another number of nodes takes a job of its own.
// Nothing of a job is kept in the study: it is found again by its name.

#include <chrono>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <regex>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "profiler/launch/kinds.h"
#include "profiler/launch/log_tail.h"
#include "profiler/launch/slurm_allocation.h"
#include "profiler/launch/slurm_client.h"
#include "profiler/launch/slurm_plan.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLeaveLimit = std::chrono::seconds(30);  // of a worker that is to go
constexpr auto kGoneLimit = std::chrono::seconds(15);   // of a step that was cancelled
constexpr auto kBetweenListening = std::chrono::milliseconds(500);
constexpr auto kBetweenLooks = std::chrono::milliseconds(50);
constexpr int kNodeFailuresForgiven = 1;
constexpr int kSlowVisitsForgiven = 1;

/// Until the steps of the job with the name are gone; sends the signal once more while they are
/// not.
void EndSteps(const std::string& job, const std::string& name) {
  const Clock::time_point deadline = Clock::now() + kGoneLimit;
  while (true) {
    const auto steps = FindSteps(job, name);
    if (steps && steps->empty()) return;
    if (steps) CancelJobs(*steps, "KILL");
    if (Clock::now() >= deadline) return;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

/// srun's words where a step cannot speak with it: ranks run, and nothing that they are told
/// arrives. Seen where a controller was killed twice before its nodes had registered again: it
/// takes them for older ones, and all further steps of the job speak another protocol than srun.
constexpr char kUnheard[] = "failed reading io init message";

/// srun's words where a job takes no step for now: it is about to end or to be requeued, a node is
/// down, or the controller is busy.
constexpr const char* kNotNow[] = {"already completing or completed",
                                   "Job/step already completing",
                                   "has expired",
                                   "Invalid job id specified",
                                   "Requested nodes are busy",
                                   "Required node not available",
                                   "Job step creation temporarily",
                                   "Unable to contact slurm controller",
                                   "Socket timed out",
                                   "Communication connection failure",
                                   "Connection refused",
                                   "Unable to confirm allocation",
                                   "Zero Bytes were transmitted",
                                   "Slurmd could not",
                                   "Task launch failed on node",
                                   "Task launch for StepId",
                                   "credential",
                                   "Application launch failed"};

/// What slurmstepd and srun say of an end that was not the program's.
LaunchEnd EndByLog(const std::string& log) {
  const auto says = [&log](const char* words) { return log.find(words) != std::string::npos; };
  if (says(kUnheard)) return LaunchEnd::kNodeLost;
  if (says("DUE TO TIME LIMIT")) return LaunchEnd::kTimeLimit;
  if (says("DUE TO PREEMPTION") || says("DUE TO JOB REQUEUE")) return LaunchEnd::kPreempted;
  if (says("DUE TO NODE FAILURE") || says("Node failure on")) return LaunchEnd::kNodeLost;
  if (says("ode configuration is not available")) return LaunchEnd::kExited;  // never
  for (const char* words : kNotNow) {
    if (says(words)) return LaunchEnd::kNotTaken;
  }
  if (says("oom-kill event") || says("oom_kill event")) return LaunchEnd::kOutOfMemory;
  return LaunchEnd::kExited;
}

LaunchEnd EndByPhase(JobPhase phase) {
  switch (phase) {
    case JobPhase::kTimeLimit:
      return LaunchEnd::kTimeLimit;
    case JobPhase::kPreempted:
    case JobPhase::kWaiting:  // it was put back into the queue
      return LaunchEnd::kPreempted;
    case JobPhase::kNodeLost:
      return LaunchEnd::kNodeLost;
    case JobPhase::kOutOfMemory:
      return LaunchEnd::kOutOfMemory;
    case JobPhase::kEnding:  // for a grace time, perhaps
      return LaunchEnd::kNotTaken;
    default:
      return LaunchEnd::kExited;
  }
}

/// The nodes of "Node failure on n2".
std::vector<std::string> FailedNodes(const std::string& log) {
  static const std::regex kFailure("Node failure on ([A-Za-z0-9._-]{1,64})");
  std::vector<std::string> nodes;
  for (std::sregex_iterator at(log.begin(), log.end(), kFailure), end; at != end; ++at) {
    nodes.push_back((*at)[1]);
  }
  return nodes;
}

class SlurmRun : public LaunchedRun {
 public:
  using NodeFailures = std::map<std::string, int>;

  SlurmRun(std::shared_ptr<SlurmAllocation> allocation, LaunchRequest request,
           const LaunchOptions& options, NodeFailures& failures)
      : allocation_(std::move(allocation)),
        request_(std::move(request)),
        command_(StepCommand(request_, options, allocation_->id())),
        failures_(failures) {
    command_[0] = FindOnPath(command_[0], "slurm-client");
  }

  ~SlurmRun() override {
    try {
      if (step_ && !step_->HasEnded()) Cancel();
    } catch (const EnvironmentError&) {
      // Ended with its job.
    }
  }

  void Tell(const std::string& line) override {
    if (step_) {
      step_->Tell(line);
    } else {
      untold_.push_back(line);
    }
  }

  State Poll() override {
    if (step_) {
      if (Unheard()) {
        Cancel();
        allocation_->GiveUp();
      }
      return step_->HasEnded() ? State::kEnded : State::kRunning;
    }
    if (!allocation_->Ready()) return allocation_->over() ? State::kEnded : State::kWaiting;
    said_before_ = LogBytes(request_.log_path);
    step_.emplace(command_[0], std::vector<std::string>(command_.begin() + 1, command_.end()),
                  request_.log_path);
    for (const std::string& line : untold_) step_->Tell(line);
    return State::kRunning;
  }

  std::string WhyWaiting() const override { return step_ ? "" : allocation_->reason(); }

  void Cancel() override {
    if (!step_) return;
    EndSteps(allocation_->id(), request_.name);
    step_->Kill();
  }

  ChildExit Wait() override {
    if (!step_) return {};
    step_->Hush();
    const Clock::time_point deadline = Clock::now() + kLeaveLimit;
    while (!step_->HasEnded() && Clock::now() < deadline)
      std::this_thread::sleep_for(kBetweenLooks);
    if (!step_->HasEnded()) Cancel();
    return step_->Wait();
  }

  LaunchEnd Classify(const std::string& log) override {
    for (const std::string& node : FailedNodes(log)) ++failures_[node];
    const LaunchEnd said = EndByLog(log);
    JobPhase phase = allocation_->Refresh();
    const Clock::time_point deadline = Clock::now() + kGoneLimit;
    while (phase == JobPhase::kEnding && Clock::now() < deadline) {
      std::this_thread::sleep_for(kBetweenLooks);
      phase = allocation_->Refresh();
    }
    const LaunchEnd by_job = EndByPhase(phase);
    // The job knows better why it takes no step.
    const bool vague = said == LaunchEnd::kExited || said == LaunchEnd::kNotTaken;
    return vague && by_job != LaunchEnd::kExited ? by_job : said;
  }

 private:
  /// Whether the running step cannot hear what it is told.
  bool Unheard() {
    if (Clock::now() < listen_at_) return false;
    listen_at_ = Clock::now() + kBetweenListening;
    return LogTail(request_.log_path, said_before_).find(kUnheard) != std::string::npos;
  }

  const std::shared_ptr<SlurmAllocation> allocation_;
  const LaunchRequest request_;
  std::vector<std::string> command_;
  NodeFailures& failures_;
  std::vector<std::string> untold_;
  std::optional<ChildProcess> step_;
  int64_t said_before_ = 0;  // bytes of the log
  Clock::time_point listen_at_ = Clock::now();
};

class SlurmLauncher : public Launcher {
 public:
  explicit SlurmLauncher(LaunchOptions options) : options_(std::move(options)) {
    if (const char* job = std::getenv("SLURM_JOB_ID")) own_job_ = job;
  }

  LaunchPlan Plan(const LaunchRequest& request) const override {
    LaunchPlan plan;
    if (own_job_.empty()) {
      const std::string script = ScriptPath(request);
      plan.files.push_back({.path = script, .text = HolderScript()});
      plan.reserve = HolderCommand(request, Excluding(slow_nodes_), script);
    }
    plan.start = StepCommand(request, options_, own_job_.empty() ? kJobId : own_job_);
    return plan;
  }

  LaunchPlan PlanOnce(const LaunchRequest& request) const override {
    LaunchPlan plan;
    plan.start = own_job_.empty() ? OnceCommand(request, options_)
                                  : StepCommand(request, options_, own_job_);
    return plan;
  }

  LaunchPlan PlanJob(const LaunchRequest& request, const std::string& base,
                     int64_t margin_s) const override {
    if (!own_job_.empty()) return {};
    LaunchPlan plan;
    plan.files.push_back({.path = base + ".slurm.sh", .text = BatchScript()});
    plan.reserve = BatchCommand(
        request, options_,
        {.script_path = base + ".slurm.sh", .output_path = request.log_path, .margin_s = margin_s});
    return plan;
  }

  std::unique_ptr<LaunchedRun> Submit(const LaunchRequest& request) override {
    return std::make_unique<SlurmRun>(AllocationFor(request), request, options_, failures_);
  }

  void EndLeftovers(const std::string& study) override {
    for (const SlurmJob& job : JobsOf(study)) EndSteps(job.id, "");
  }

  /// A controller that is killed forgets steps that began just before. Nodes end whatever they run
  /// of a job.
  void GiveUpNodes(const std::string& study) override {
    std::vector<std::string> ids;
    for (const SlurmJob& job : JobsOf(study)) ids.push_back(job.id);
    CancelJobs(ids);
  }

  bool NoteSlow(const std::string& host) override {
    if (++slow_visits_[host] != kSlowVisitsForgiven + 1) return false;
    AddNode(host, slow_nodes_);
    if (own_job_.empty()) allocations_.clear();
    return true;
  }

  bool elsewhere() const override { return true; }

 private:
  /// That this program began.
  std::vector<SlurmJob> JobsOf(const std::string& study) const {
    if (!own_job_.empty()) return {};
    const auto jobs = FindJobs(HolderName(study));
    if (!jobs) throw EnvironmentError("Slurm's controller does not answer (squeue)");
    return *jobs;
  }

  static std::string ScriptPath(const LaunchRequest& request) {
    return request.log_path + ".slurm.sh";
  }

  std::shared_ptr<SlurmAllocation> AllocationFor(const LaunchRequest& request) {
    ExcludeFailingNodes();
    auto& allocation = allocations_[own_job_.empty() ? NodesAskedFor(request, options_) : 0];
    if (allocation && !allocation->over()) return allocation;
    if (!own_job_.empty()) return allocation = std::make_shared<SlurmAllocation>(own_job_);
    const LaunchPlan plan = Plan(request);
    for (const PlannedFile& planned : plan.files) {
      AtomicFile file(planned.path);
      file.Append(planned.text);
      file.Commit();
    }
    SlurmAllocation::Request asked = {.name = HolderName(request.study),
                                      .nodes = NodesAskedFor(request, options_),
                                      .command = plan.reserve};
    if (!slow_nodes_.empty()) {
      asked.with_all_nodes = HolderCommand(request, options_, ScriptPath(request));
    }
    if (const auto limit = options_.find("pending-limit"); limit != options_.end()) {
      asked.pending_limit_s = std::stod(limit->second);
    }
    return allocation = std::make_shared<SlurmAllocation>(std::move(asked));
  }

  /// A node that failed twice is left out from now on, and its job given up.
  void ExcludeFailingNodes() {
    for (auto& [node, failures] : failures_) {
      if (failures <= kNodeFailuresForgiven) continue;
      failures = std::numeric_limits<int>::min();
      AddNode(node, options_["exclude"]);
      if (own_job_.empty()) allocations_.clear();
    }
  }

  static void AddNode(const std::string& node, std::string& nodes) {
    nodes += (nodes.empty() ? "" : ",") + node;
  }

  /// The user's options, and without `nodes`.
  LaunchOptions Excluding(const std::string& nodes) const {
    LaunchOptions options = options_;
    if (!nodes.empty()) AddNode(nodes, options["exclude"]);
    return options;
  }

  LaunchOptions options_;
  std::string own_job_;  // that this process runs in; empty: in none
  std::map<int64_t, std::shared_ptr<SlurmAllocation>> allocations_;  // by nodes
  SlurmRun::NodeFailures failures_;
  std::map<std::string, int> slow_visits_;  // by node
  std::string slow_nodes_;                  // left out as long as others suffice
};

}  // namespace

std::unique_ptr<Launcher> MakeSlurmLauncher(LaunchOptions options) {
  return std::make_unique<SlurmLauncher>(std::move(options));
}

}  // namespace trimtab
