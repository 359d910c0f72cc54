// Worker: the child's side of a trial. It waits for "visit ID" on its stdin, measures, appends a
// line to a results file, and waits for the next.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "profiler/leave.h"
#include "profiler/measure.h"
#include "profiler/results.h"

namespace trimtab {

/// Reads commands and writes results, in the only process of a worker or in rank 0 of those that a
/// launcher started. The other ranks learn from that one when to visit.
class VisitClerk {
 public:
  VisitClerk(const std::string& results_path, std::istream& commands);

  /// Waits for the next command. False when there is none any more.
  bool NextVisit();
  /// The ranks have met: the visit begins.
  void NoteStart();
  /// False while whatever fails is no fault of the configuration's.
  bool started() const { return started_; }
  /// Ends the visit.
  void Write(TrialResult result);
  const std::optional<TrialResult>& last() const { return last_; }

 private:
  std::istream& commands_;
  std::optional<ResultsFile> results_;
  std::optional<LeaveWatch> leave_;  // beside `results_`
  std::string attempt_;
  bool started_ = false;  // any visit
  std::optional<TrialResult> last_;
};

/// Makes visits until no more are asked for. The first command has been read. Throws what ends the
/// worker.
using Visits = std::function<void(VisitClerk& clerk)>;

/// Runs `visits` once the first command has come. Returns what was appended last, or nothing. Out
/// of memory and failures are written as results, not thrown, and end it; the caller exits with
/// WorkerExitCode. Throws StorageError if a line cannot be written, InputError for a command it
/// does not know.
std::optional<TrialResult> RunWorker(const std::string& results_path, std::istream& commands,
                                     const Visits& visits);

/// Returns visits that measure training steps of `run`, on the ranks of this process or a launcher.
Visits TrainingVisits(const RunConfig& run, const MeasureOptions& options);

/// 0 done or never asked, 4 out of memory, 1 otherwise.
int WorkerExitCode(const std::optional<TrialResult>& result);

}  // namespace trimtab
