// Trials: visits to a configuration in processes of its own, watched, limited and classified.
//
// What a launcher (launch/launcher.h) starts is `trimtab profile --config RUN.json --result FILE
// --steps N ...`, or `trimtab bench` likewise (worker.h). It reads "visit ID" on its stdin,
// measures, appends a line to FILE (results.h), and waits for the next: parked, it keeps its memory
// and uses no core. At the end of its stdin it leaves. A crash or an out-of-memory costs that visit
// and nothing else; a killed driver takes its children with it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/units.h"
#include "profiler/launch/launcher.h"
#include "profiler/measure.h"
#include "profiler/results.h"

namespace trimtab {

/// The command of this program that a visit runs: it measures whenever it is told (worker.h).
struct TrialJob {
  std::string key;                   // names the configuration: visits of one key share a worker
  std::string command = "profile";   // of this program
  std::string config;                // text of the file that its --config names
  std::vector<std::string> options;  // others
  int64_t ranks = 1;
  bool gpus = false;  // each rank has one
};
/// Makes a job that measures training steps of `run`.
TrialJob TrainingJob(const RunConfig& run, const MeasureOptions& measure, std::string key);

/// What to measure and where the result goes.
struct TrialRequest {
  TrialJob job;
  std::string attempt;         // names the visit; unique in `results_path`
  std::string results_path;    // the worker appends here
  std::string log_path;        // the worker's stdout and stderr are appended here
  std::string study;           // whose visit it is: names what a killed driver leaves
  int64_t ranks_per_node = 1;  // at most
  double time_limit_s = 0;     // killed after it ran for this long; 0 = no limit
  int64_t memory_bytes = 0;    // that its ranks are expected to hold while parked, all together
  /// Polled while the visit waits for nodes, or for another try of its launcher: once true it is
  /// given up. May be empty.
  std::function<bool()> give_up_waiting{};
};

/// How the visit ended. A measurement, if there is one, is in the results file.
struct TrialOutcome {
  TrialState state = TrialState::kFailed;
  int exit_code = 0;    // of a child that ended; 128 + n when signal n ended it
  std::string message;  // one line; empty when done
  double seconds = 0;   // wall time of the visit
};

/// Runs visits one at a time. Tests put a fake in its place.
class TrialRunner {
 public:
  virtual ~TrialRunner() = default;
  /// Returns when the visit has ended. `cancelled` is polled about 50 times a second; once true the
  /// worker is killed and the outcome is kCancelled. What the visit did is a value; where it could
  /// not be started, however often that was tried, the outcome is kInterrupted. Throws only
  /// EnvironmentError (nothing can be started) and StorageError (log or config unwritable).
  virtual TrialOutcome Run(const TrialRequest& request, const std::function<bool()>& cancelled) = 0;
  /// Configuration `key` is not expected to be visited again: its worker leaves.
  virtual void Release(const std::string& /*key*/) {}
  /// A rank on `host` was slower than the others: the launcher avoids it if it can.
  virtual void NoteSlow(const std::string& /*host*/) {}
  /// Ends what a killed driver of `study` may have left running.
  virtual void EndLeftovers(const std::string& /*study*/) {}
  /// The same where EndLeftovers did not reach all of it: at the cost of the nodes it has.
  virtual void GiveUpNodes(const std::string& /*study*/) {}
};

/// How ProcessTrialRunner starts its workers.
struct WorkerOptions {
  std::string program = "/proc/self/exe";   // the `trimtab` binary
  std::vector<std::string> arguments = {};  // before the worker's own; none: its command
  std::shared_ptr<Launcher> launcher = MakeLauncher("inproc", {});
  int64_t parked_bytes = 0;  // workers park while they hold no more than this together
  double first_retry_s = 1;  // pause before a start that failed is tried again; it grows
};
/// What a parked worker holds beside what its ranks do: code, probes, caches of libraries and
/// allocators. Workers of four ranks were seen to hold 80 to 220 MB.
inline constexpr int64_t kProcessBytes = 256 * kMiB;

/// What the launcher is to start for `request`, the worker's RUN.json being at `config_path`.
/// Throws EnvironmentError when the program is not there.
LaunchRequest WorkerLaunch(const WorkerOptions& options, const TrialRequest& request,
                           const std::string& config_path);

/// Workers that a launcher starts. Call it from one thread that outlives the workers: the kernel
/// ties a child's life to the thread that started it.
class ProcessTrialRunner : public TrialRunner {
 public:
  explicit ProcessTrialRunner(WorkerOptions options = {});
  ~ProcessTrialRunner() override;
  TrialOutcome Run(const TrialRequest& request, const std::function<bool()>& cancelled) override;
  void Release(const std::string& key) override;
  void NoteSlow(const std::string& host) override;
  void EndLeftovers(const std::string& study) override { options_.launcher->EndLeftovers(study); }
  void GiveUpNodes(const std::string& study) override { options_.launcher->GiveUpNodes(study); }

 private:
  struct Worker;

  Worker& Start(const TrialRequest& request);
  /// One try of Run. Where it could not begin, `most_tries` is set to how many are worth making.
  TrialOutcome Try(const TrialRequest& request, const std::function<bool()>& cancelled,
                   int& most_tries);
  /// Until the visit has ended, in the results file or without a line there.
  static TrialOutcome Watch(LaunchedRun& run, const TrialRequest& request, int64_t log_offset,
                            const std::function<bool()>& cancelled, int& most_tries);
  /// Ends the workers that there is no room for.
  void MakeRoom();

  WorkerOptions options_;
  std::vector<std::unique_ptr<Worker>> workers_;  // the last visited one last
};

}  // namespace trimtab
