#include "profiler/trial.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "profiler/child_process.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPollInterval = std::chrono::milliseconds(10);
constexpr int64_t kMaxTailBytes = 4096;
constexpr size_t kMaxMessageBytes = 400;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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
  return {"--config",          config_path,
          "--result",          request.results_path,
          "--steps",           std::to_string(request.measure.steps),
          "--warmup",          std::to_string(request.measure.warmup),
          "--max-steps",       std::to_string(request.measure.max_steps),
          "--min-seconds",     fmt::format("{}", request.measure.min_seconds),
          "--stable-mad",      fmt::format("{}", request.measure.stable_mad),
          "--breakdown-visit", std::to_string(request.measure.breakdown_visit),
          "--max-seconds",     fmt::format("{}", request.measure.max_seconds)};
}

/// What a child that ended without a result was.
void Classify(const ChildExit& end, const std::string& said, TrialOutcome& outcome) {
  outcome.exit_code = end.exit_code;
  if (end.signal != 0) {
    outcome.state = TrialState::kCrashed;
    outcome.message =
        fmt::format("ended by signal {} ({}){}", end.signal, strsignal(end.signal), said);
  } else {
    outcome.state = TrialState::kFailed;
    outcome.message = fmt::format("exit code {} without a result{}", end.exit_code, said);
  }
}

}  // namespace

struct ProcessTrialRunner::Worker {
  std::string key;
  int64_t memory_bytes = 0;
  ChildProcess child;
};

ProcessTrialRunner::ProcessTrialRunner(WorkerOptions options) : options_(std::move(options)) {}

ProcessTrialRunner::~ProcessTrialRunner() = default;

ProcessTrialRunner::Worker& ProcessTrialRunner::Start(const TrialRequest& request) {
  const std::string config_path = request.results_path + ".run.json";
  AtomicFile config(config_path);
  config.Append(ToJson(request.run).dump(2) + "\n");
  config.Commit();

  std::string program = options_.program;
  std::vector<std::string> arguments;
  if (options_.launcher == Launcher::kMpirun) {
    arguments = MpirunCommand(request.run.layout.world_size(), program);
    program = arguments.front();
    arguments.erase(arguments.begin());
  }
  arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
  for (std::string& argument : Arguments(request, config_path)) {
    arguments.push_back(std::move(argument));
  }
  workers_.push_back(std::unique_ptr<Worker>(new Worker{
      request.key, request.memory_bytes, ChildProcess(program, arguments, request.log_path)}));
  return *workers_.back();
}

void ProcessTrialRunner::MakeRoom() {
  int64_t bytes = 0;
  for (const auto& worker : workers_) bytes += worker->memory_bytes;
  // The one visited longest ago is wanted last.
  while (!workers_.empty() && bytes > options_.parked_bytes) {
    bytes -= workers_.front()->memory_bytes;
    workers_.front()->child.Wait();
    workers_.erase(workers_.begin());
  }
}

void ProcessTrialRunner::Release(const std::string& key) {
  for (const auto& worker : workers_) {
    if (worker->key == key) worker->child.Wait();
  }
  std::erase_if(workers_, [&](const auto& worker) { return worker->key == key; });
}

TrialOutcome ProcessTrialRunner::Run(const TrialRequest& request,
                                     const std::function<bool()>& cancelled) {
  const Clock::time_point start = Clock::now();
  const int64_t log_offset = FileSize(request.log_path);
  const auto parked = std::find_if(workers_.begin(), workers_.end(),
                                   [&](const auto& each) { return each->key == request.key; });
  if (parked != workers_.end() && (*parked)->child.HasEnded()) {
    workers_.erase(parked);
    return Run(request, cancelled);
  }
  if (parked != workers_.end()) std::rotate(parked, parked + 1, workers_.end());
  Worker& worker = parked != workers_.end() ? *workers_.back() : Start(request);
  worker.child.Tell("visit " + request.attempt);

  TrialOutcome outcome;
  int64_t read = -1;  // bytes of the results file that hold no line of this visit
  const auto finished = [&] {
    const int64_t size = FileSize(request.results_path);
    if (size == read) return false;
    read = size;
    const auto result = FindResult(request.results_path, request.attempt);
    if (!result) return false;
    // A finished line is a finished visit, whatever becomes of the child afterwards.
    outcome.state = result->state;
    outcome.message = result->message;
    return true;
  };
  bool ended = false;
  bool killed = false;
  while (!finished()) {
    if (ended) {
      const std::string last_line = LastLine(request.log_path, log_offset);
      const ChildExit end = worker.child.Wait();
      Release(request.key);
      if (end.exit_code == static_cast<int>(ExitCode::kStorage)) {
        throw StorageError(last_line.empty()
                               ? request.results_path + ": the trial could not write its result"
                               : last_line);
      }
      if (!killed) Classify(end, last_line.empty() ? "" : "; it last said: " + last_line, outcome);
      outcome.seconds = SecondsSince(start);
      return outcome;
    }
    const double seconds = SecondsSince(start);
    if (!killed && cancelled && cancelled()) {
      outcome.state = TrialState::kCancelled;
      outcome.message = "cancelled";
      killed = true;
    } else if (!killed && request.time_limit_s > 0 && seconds > request.time_limit_s) {
      outcome.state = TrialState::kTimedOut;
      const std::string last_line = LastLine(request.log_path, log_offset);
      outcome.message = fmt::format("killed after the time limit of {} s{}", request.time_limit_s,
                                    last_line.empty() ? "" : "; it last said: " + last_line);
      killed = true;
    }
    if (killed) worker.child.Kill();
    ended = worker.child.HasEnded();
    if (!ended) std::this_thread::sleep_for(kPollInterval);
  }
  outcome.seconds = SecondsSince(start);
  if (outcome.state != TrialState::kDone) {
    outcome.exit_code = worker.child.Wait().exit_code;
    Release(request.key);
  } else {
    MakeRoom();
  }
  return outcome;
}

}  // namespace trimtab
