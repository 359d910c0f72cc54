// Launcher: how the processes of a run are started, watched and ended. One interface over a child
// of this process, mpirun on this machine or over hosts, Slurm, and Kubernetes (which is only
// planned).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "profiler/launch/child_process.h"

namespace trimtab {

/// What is to run.
struct LaunchRequest {
  std::string name{};                    // of this run, among all of them; [A-Za-z0-9._-]
  std::string study{};                   // what a killed driver's runs are found again by
  int64_t ranks = 1;                     // of the layout
  int64_t ranks_per_node = 1;            // at most
  bool gpus = false;                     // a rank has a GPU
  std::string program{};                 // absolute path of the `trimtab` binary
  std::vector<std::string> arguments{};  // argv[1] on
  std::string log_path{};                // stdout and stderr are appended here
};

/// A file that a launcher writes before it sends anything.
struct PlannedFile {
  std::string path{};
  std::string text{};
};

/// What would be sent. Commands are argv, which no shell ever reads.
struct LaunchPlan {
  std::vector<PlannedFile> files{};
  std::vector<std::string> reserve{};  // gets the nodes, once for many runs, and prints their job;
                                       // empty: nodes need not be asked for
  std::vector<std::string> start{};    // starts the ranks; kJobId stands for that job
};
inline constexpr char kJobId[] = "JOBID";
/// For people: each file under its name, each command as a shell would take it.
std::string ToText(const LaunchPlan& plan);

/// Why a run ended that wrote no result, as far as its launcher can tell.
enum class LaunchEnd {
  kExited,       // by itself, or of a signal
  kTimeLimit,    // of the scheduler
  kPreempted,    // others got the nodes
  kNodeLost,     // a node died, or the job vanished
  kOutOfMemory,  // of a node: the scheduler or the kernel ended it
  kNotTaken,     // the scheduler takes no run just now: later it may
};

/// One run that was submitted.
class LaunchedRun {
 public:
  enum class State { kWaiting, kRunning, kEnded };

  /// Cancels it, if it has not ended.
  virtual ~LaunchedRun() = default;
  /// Writes a line to the stdin of rank 0, once that runs.
  virtual void Tell(const std::string& line) = 0;
  /// Throws EnvironmentError when it will never run, or the user took its nodes away.
  virtual State Poll() = 0;
  /// What it waits for, in the scheduler's words; empty when it does not, or nobody says.
  virtual std::string WhyWaiting() const { return ""; }
  /// What its processes are doing right now, as far as this machine knows.
  virtual std::string Doing() const { return ""; }
  /// Ends all of its processes, wherever they are.
  virtual void Cancel() = 0;
  /// Closes its stdin, which a worker takes for its end, and waits for that.
  virtual ChildExit Wait() = 0;
  /// After its end: why, by what it said (`log`) and what the scheduler knows.
  virtual LaunchEnd Classify(const std::string& log) = 0;
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  /// What Submit would do: pure, and asks nobody.
  virtual LaunchPlan Plan(const LaunchRequest& request) const = 0;
  /// The same for a run that is the only one: its command asks for the nodes itself.
  virtual LaunchPlan PlanOnce(const LaunchRequest& request) const { return Plan(request); }
  /// The same for a run that outlives this process and may be ended and started again by its
  /// scheduler; empty where there is no such thing. `base`: begins the paths of its files.
  /// `margin_s`: so long before its time limit it is told (SIGUSR2); 0 = not.
  virtual LaunchPlan PlanJob(const LaunchRequest& /*request*/, const std::string& /*base*/,
                             int64_t /*margin_s*/) const {
    return {};
  }
  /// Throws EnvironmentError (the launcher is not here, or refuses it), StorageError (log).
  virtual std::unique_ptr<LaunchedRun> Submit(const LaunchRequest& request) = 0;
  /// Ends what a driver that was killed left running of `study`; nodes it held are taken over.
  virtual void EndLeftovers(const std::string& /*study*/) {}
  /// Gives the nodes of `study` back, with all that runs on them: also what their scheduler has
  /// forgotten. Others are asked for then.
  virtual void GiveUpNodes(const std::string& /*study*/) {}
  /// A rank on `host` was slower than the others. Whether what is started from now on runs
  /// elsewhere: only then are workers there worth replacing.
  virtual bool NoteSlow(const std::string& /*host*/) { return false; }
  /// Ranks are processes of their own, not threads of one.
  virtual bool ranks_are_processes() const { return true; }
  /// Ranks may run on other machines than this one.
  virtual bool elsewhere() const { return false; }
};

/// `name`: one of LauncherNames(); `options`: KEY=VALUE each, or KEY alone for a switch.
/// Throws UsageError for an option that the launcher does not know, or a value that makes no sense.
std::unique_ptr<Launcher> MakeLauncher(const std::string& name,
                                       const std::vector<std::string>& options);
const std::vector<std::string>& LauncherNames();
/// Every option of every launcher, for --help.
std::string DescribeLauncherOptions();

/// The absolute path of `name` on PATH. Throws EnvironmentError; `package` is Debian's.
std::string FindOnPath(const std::string& name, const std::string& package);

/// How many nodes `request` takes when each has ranks_per_node ranks.
int64_t NodesOf(const LaunchRequest& request);

}  // namespace trimtab
