#include <exception>
#include <new>
#include <optional>

#include "engine/base/error.h"
#include "engine/comm/mpi_launch.h"
#include "profiler/trial.h"

namespace trimtab {
namespace {

/// How long a worker waits for the worker before it to be gone.
constexpr double kLockWaitSeconds = 30;

}  // namespace

TrialResult RunWorker(const RunConfig& run, const MeasureOptions& options,
                      const std::string& results_path, const std::string& attempt) {
  const bool writes = LaunchedRank() == 0;
  std::optional<ResultsFile> results;
  if (writes) results.emplace(results_path, kLockWaitSeconds);
  TrialResult result{
      .attempt = attempt, .state = TrialState::kFailed, .message = "", .measurement = {}};
  try {
    result.measurement = Measure(run, options);
    result.state = TrialState::kDone;
  } catch (const OutOfMemoryError& error) {
    result.state = TrialState::kOutOfMemory;
    result.message = error.what();
  } catch (const std::bad_alloc&) {
    result.state = TrialState::kOutOfMemory;
    result.message = "the machine has no more memory";
  } catch (const std::exception& error) {
    result.message = error.what();
  }
  if (writes) results->Append(result);
  return result;
}

int WorkerExitCode(const TrialResult& result) {
  switch (result.state) {
    case TrialState::kDone:
      return static_cast<int>(ExitCode::kOk);
    case TrialState::kOutOfMemory:
      return static_cast<int>(ExitCode::kInfeasible);
    default:
      return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace trimtab
