#include "profiler/trial.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "profiler/child_process.h"

namespace trimtab {
namespace {

constexpr int64_t kMaxTailBytes = 4096;
constexpr size_t kMaxMessageBytes = 400;

int64_t FileSize(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

/// The last line that says something in what was appended to the log since `offset`.
std::string LastLine(const std::string& log_path, int64_t offset) {
  std::ifstream log(log_path, std::ios::binary);
  const int64_t end = FileSize(log_path);
  log.seekg(std::max(offset, end - kMaxTailBytes));
  std::string line;
  std::string last;
  while (std::getline(log, line)) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  return last.substr(0, kMaxMessageBytes);
}

std::optional<TrialResult> FindResult(const std::string& results_path, const std::string& attempt) {
  for (TrialResult& result : ReadResults(results_path)) {
    if (result.attempt == attempt) return std::move(result);
  }
  return std::nullopt;
}

std::vector<std::string> Arguments(const TrialRequest& request, const std::string& config_path) {
  return {"--config",      config_path,
          "--result",      request.results_path,
          "--attempt",     request.attempt,
          "--steps",       std::to_string(request.measure.steps),
          "--warmup",      std::to_string(request.measure.warmup),
          "--max-steps",   std::to_string(request.measure.max_steps),
          "--max-seconds", fmt::format("{}", request.measure.max_seconds)};
}

/// What a child that left no result was.
void Classify(const ChildExit& end, const TrialRequest& request, const std::string& last_line,
              TrialOutcome& outcome) {
  const std::string said = last_line.empty() ? "" : "; it last said: " + last_line;
  if (end.cancelled) {
    outcome.state = TrialState::kCancelled;
    outcome.message = "cancelled";
  } else if (end.timed_out) {
    outcome.state = TrialState::kTimedOut;
    outcome.message =
        fmt::format("killed after the time limit of {} s{}", request.time_limit_s, said);
  } else if (end.signal != 0) {
    outcome.state = TrialState::kCrashed;
    outcome.message =
        fmt::format("ended by signal {} ({}){}", end.signal, strsignal(end.signal), said);
  } else {
    outcome.state = TrialState::kFailed;
    outcome.message = fmt::format("exit code {} without a result{}", end.exit_code, said);
  }
}

}  // namespace

ProcessTrialRunner::ProcessTrialRunner(std::string program,
                                       std::vector<std::string> extra_arguments, Launcher launcher)
    : program_(std::move(program)),
      extra_arguments_(std::move(extra_arguments)),
      launcher_(launcher) {}

TrialOutcome ProcessTrialRunner::Run(const TrialRequest& request,
                                     const std::function<bool()>& cancelled) {
  const std::string config_path = request.results_path + ".run.json";
  AtomicFile config(config_path);
  config.Append(ToJson(request.run).dump(2) + "\n");
  config.Commit();

  const int64_t log_offset = FileSize(request.log_path);
  std::string program = program_;
  std::vector<std::string> arguments;
  if (launcher_ == Launcher::kMpirun) {
    arguments = MpirunCommand(request.run.layout.world_size(), program_);
    program = arguments.front();
    arguments.erase(arguments.begin());
  }
  arguments.insert(arguments.end(), extra_arguments_.begin(), extra_arguments_.end());
  for (std::string& argument : Arguments(request, config_path)) {
    arguments.push_back(std::move(argument));
  }
  const ChildExit end =
      RunChild(program, arguments, request.log_path, request.time_limit_s, cancelled);

  TrialOutcome outcome{.state = TrialState::kFailed,
                       .exit_code = end.exit_code,
                       .message = "",
                       .seconds = end.seconds};
  if (const auto result = FindResult(request.results_path, request.attempt)) {
    // A finished line is a finished trial, whatever became of the child afterwards.
    outcome.state = result->state;
    outcome.message = result->message;
    return outcome;
  }
  const std::string last_line = LastLine(request.log_path, log_offset);
  if (end.exit_code == static_cast<int>(ExitCode::kStorage)) {
    throw StorageError(last_line.empty()
                           ? request.results_path + ": the trial could not write its result"
                           : last_line);
  }
  Classify(end, request, last_line, outcome);
  return outcome;
}

}  // namespace trimtab
