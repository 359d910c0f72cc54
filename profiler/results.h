// Results files: how a trial's worker hands its result to the driver of a search.
//
// A results file holds one JSON object a line. A worker appends its line in one write and fsyncs
// it before it exits, so a line that ends in a newline is a finished trial, whatever happened to
// the driver meanwhile. A last line without its newline was torn by a crash and says nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/measure.h"

namespace trimtab {

/// How a trial ended. Stored by name ("done", "out_of_memory", ...).
enum class TrialState {
  kDone,
  kOutOfMemory,
  kNumeric,  // a loss that is no number, or a time that is none
  kCrashed,
  kTimedOut,
  kFailed,
  kLost,       // its node or its job went away
  kPreempted,  // others got its nodes
  kCancelled,
  kInterrupted,  // what should have started it failed, or its driver was killed
};
std::string Name(TrialState state);
/// Inverse of Name. Throws InputError.
TrialState ParseTrialState(const std::string& name);

/// One line: {"schema_version", "attempt", "state", "message", "measurement"}.
struct TrialResult {
  std::string attempt{};                     // the id of the visit
  TrialState state = TrialState::kFailed;    // kDone, kOutOfMemory, kNumeric, kFailed or
                                             // kInterrupted
  std::string message{};                     // empty when done
  std::optional<Measurement> measurement{};  // present exactly when done
};

/// An open results file. Workers hold it together and take turns, as their driver tells them; the
/// lock that they share is what lets a resumed driver know that no worker of a killed one is left.
class ResultsFile {
 public:
  /// Creates the file if it is not there. Throws StorageError (unwritable, or a driver is waiting
  /// for the workers of an earlier one to leave).
  explicit ResultsFile(std::string path);
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  /// Appends one line, starting on a new line if the last one was torn, and fsyncs.
  /// Throws StorageError (disk full, ...); the file is then cut back to what it held before.
  void Append(const TrialResult& result);
  /// Appends {"schema_version", "attempt", "state": "started"}: the ranks of the visit have met, so
  /// what becomes of it from now on is no fault of what started them.
  void AppendStart(const std::string& attempt);

 private:
  void AppendLine(std::string line);

  std::string path_;
  int fd_ = -1;
};

/// Waits up to `wait_s` until no worker holds the results file any more, and asks those that do to
/// leave (leave.h); false when one still does.
/// Throws StorageError when the file cannot be opened.
bool WorkersGone(const std::string& path, double wait_s);
/// The same; throws StorageError when one still does.
void AwaitWorkersGone(const std::string& path, double wait_s);

/// True if the file says that the ranks of visit `attempt` have met (ResultsFile::AppendStart).
bool HasStarted(const std::string& path, const std::string& attempt);

/// Every finished result of `path`, in order; lines that are torn or not a result are skipped.
/// A file that does not exist holds none. Throws StorageError when it cannot be read.
std::vector<TrialResult> ReadResults(const std::string& path);

}  // namespace trimtab
