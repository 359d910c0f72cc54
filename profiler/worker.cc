#include "profiler/worker.h"

#include <cmath>
#include <exception>
#include <istream>
#include <new>
#include <optional>

#include "engine/base/error.h"
#include "engine/comm/mpi_launch.h"
#include "engine/config/rules/rules.h"
#include "engine/data/dataset/open_token_source.h"
#include "engine/train/numeric_error.h"

namespace trimtab {
namespace {

constexpr std::string_view kVisit = "visit ";

/// What the exception that is being handled says of the configuration. Before the ranks have met
/// (no GPU, no MPI, no data) every other configuration would fail alike, unless a rule forbids it.
TrialResult ResultOfFailure(bool started) {
  const auto is = [started](TrialState state, const char* message) {
    return TrialResult{.state = started ? state : TrialState::kInterrupted, .message = message};
  };
  try {
    throw;
  } catch (const OutOfMemoryError& error) {
    return is(TrialState::kOutOfMemory, error.what());
  } catch (const InfeasibleError& error) {
    return {.state = TrialState::kFailed, .message = error.what()};
  } catch (const NumericError& error) {
    return is(TrialState::kNumeric, error.what());
  } catch (const std::bad_alloc&) {
    return is(TrialState::kOutOfMemory, "the machine has no more memory");
  } catch (const std::exception& error) {
    return is(TrialState::kFailed, error.what());
  }
}

}  // namespace

VisitClerk::VisitClerk(const std::string& results_path, std::istream& commands)
    : commands_(commands) {
  if (LaunchedRank() != 0) return;
  results_.emplace(results_path);
  leave_.emplace(results_path);
}

bool VisitClerk::NextVisit() {
  if (!results_) return true;
  std::string line;
  if (!std::getline(commands_, line)) return false;
  if (!line.starts_with(kVisit)) {
    throw InputError(fmt::format("stdin: \"{}\": expected \"visit ID\"", line));
  }
  attempt_ = line.substr(kVisit.size());
  leave_->SetVisiting(true);
  return true;
}

void VisitClerk::NoteStart() {
  if (results_) results_->AppendStart(attempt_);
  started_ = true;
}

void VisitClerk::Write(TrialResult result) {
  result.attempt = attempt_;
  if (results_) {
    results_->Append(result);
    leave_->SetVisiting(false);
  }
  last_ = std::move(result);
}

Visits TrainingVisits(const RunConfig& run, const MeasureOptions& options) {
  return [run, options](VisitClerk& clerk) {
    const RunConfig whole = WithLength(run);
    RequireLegal(whole);
    const std::unique_ptr<TokenSource> source = OpenTokenSource(whole);
    RunRanks(whole, [&](Rank& rank) {
      if (rank.speaks()) clerk.NoteStart();
      Visitor visitor(whole, options, *source, rank);
      bool again = true;  // the first command has been read
      while (again) {
        Measurement measurement = visitor.Visit();
        if (rank.speaks()) {
          const std::string fault = WhyNotNumeric(measurement);
          if (fault.empty()) {
            clerk.Write({.state = TrialState::kDone, .measurement = std::move(measurement)});
          } else {
            clerk.Write({.state = TrialState::kNumeric, .message = fault});
          }
        }
        again = rank.AwaitFirst([&clerk] { return clerk.NextVisit() ? 1 : 0; }) != 0;
        if (again && rank.speaks()) clerk.NoteStart();
      }
    });
  };
}

std::optional<TrialResult> RunWorker(const std::string& results_path, std::istream& commands,
                                     const Visits& visits) {
  VisitClerk clerk(results_path, commands);
  if (!clerk.NextVisit()) return std::nullopt;
  try {
    visits(clerk);
  } catch (const StorageError&) {
    throw;
  } catch (const std::exception&) {
    clerk.Write(ResultOfFailure(clerk.started()));
  }
  return clerk.last();
}

int WorkerExitCode(const std::optional<TrialResult>& result) {
  if (!result) return static_cast<int>(ExitCode::kOk);
  switch (result->state) {
    case TrialState::kDone:
      return static_cast<int>(ExitCode::kOk);
    case TrialState::kOutOfMemory:
      return static_cast<int>(ExitCode::kInfeasible);
    default:
      return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace trimtab
