// Trials: one measurement in a child process, watched, limited and classified.
//
// The child is `trimtab profile --config RUN.json --result FILE --attempt ID --steps N --warmup N
// --max-steps N --max-seconds S`; it ends by appending a line to FILE (results.h). A crash or an
// out-of-memory costs that trial and nothing else; a killed driver takes its child with it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "profiler/measure.h"
#include "profiler/mpirun.h"
#include "profiler/results.h"

namespace trimtab {

/// What to measure and where the result goes.
struct TrialRequest {
  RunConfig run;
  std::string attempt;       // unique in `results_path`
  std::string results_path;  // the worker appends here
  std::string log_path;      // the child's stdout and stderr are appended here
  double time_limit_s = 0;   // the child is killed after this long; 0 = no limit
  MeasureOptions measure;
};

/// How the child ended. A measurement, if there is one, is in the results file.
struct TrialOutcome {
  TrialState state = TrialState::kFailed;
  int exit_code = 0;    // of the child; 128 + n when signal n ended it
  std::string message;  // one line; empty when done
  double seconds = 0;   // wall time of the trial
};

/// Runs trials one at a time. Tests put a fake in its place.
class TrialRunner {
 public:
  virtual ~TrialRunner() = default;
  /// Returns when the trial has ended. `cancelled` is polled about 50 times a second; once true the
  /// child is killed and the outcome is kCancelled. What the trial did is a value; throws only
  /// EnvironmentError (no process can be started) and StorageError (log or config unwritable).
  virtual TrialOutcome Run(const TrialRequest& request, const std::function<bool()>& cancelled) = 0;
};

/// Child processes of this machine. `program` is the `trimtab` binary; `extra_arguments` go before
/// the worker's own. With `launcher` kMpirun the child is an mpirun that starts this program once
/// per rank. Call it from one thread that outlives the trial: the kernel ties the child's life to
/// the thread that started it.
class ProcessTrialRunner : public TrialRunner {
 public:
  explicit ProcessTrialRunner(std::string program = "/proc/self/exe",
                              std::vector<std::string> extra_arguments = {"profile"},
                              Launcher launcher = Launcher::kInproc);
  TrialOutcome Run(const TrialRequest& request, const std::function<bool()>& cancelled) override;

 private:
  std::string program_;
  std::vector<std::string> extra_arguments_;
  Launcher launcher_;
};

/// The worker's side of `trimtab profile --result`: measures `run`, appends the line, returns what
/// it appended. Of the ranks that are processes, rank 0 writes it. Out of memory and failures are
/// written as results, not thrown; the caller exits with WorkerExitCode. Throws StorageError if the
/// line cannot be written.
TrialResult RunWorker(const RunConfig& run, const MeasureOptions& options,
                      const std::string& results_path, const std::string& attempt);

/// 0 done, 4 out of memory, 1 otherwise.
int WorkerExitCode(const TrialResult& result);

}  // namespace trimtab
