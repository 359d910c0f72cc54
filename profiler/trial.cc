#include "profiler/trial.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/log.h"
#include "profiler/launch/log_tail.h"
#include "profiler/launch/log_words.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPollInterval = std::chrono::milliseconds(10);

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What the visit's worker wrote; not of a try that said that it could not begin.
std::optional<TrialResult> FindResult(const std::string& results_path, const std::string& attempt) {
  for (TrialResult& result : ReadResults(results_path)) {
    const bool began = result.state != TrialState::kInterrupted;
    if (result.attempt == attempt && began) return std::move(result);
  }
  return std::nullopt;
}

/// Why the last try of a visit did not begin: its worker's own words, else the first of the log.
std::string WhyUnstarted(const TrialRequest& request, int64_t log_offset) {
  const std::vector<TrialResult> results = ReadResults(request.results_path);
  for (auto result = results.rbegin(); result != results.rend(); ++result) {
    if (result->attempt == request.attempt) return result->message;
  }
  return FirstComplaint(LogHead(request.log_path, log_offset));
}

/// How often a launcher that does not start what it is given is tried, by why.
constexpr int kTriesRefused = 4;  // most refusals stay what they are
constexpr int kTriesBusy = 40;    // jobs end, and nodes come back, within a quarter of an hour
constexpr double kLongestRetryPauseSeconds = 30;

/// What a worker was that ended before its ranks had met: nothing of the configuration had run.
void ClassifyUnstarted(const ChildExit& end, LaunchEnd why, const std::string& complaint,
                       TrialOutcome& outcome, int& most_tries) {
  outcome.exit_code = end.exit_code;
  outcome.state = TrialState::kInterrupted;
  const bool refused = why == LaunchEnd::kExited || why == LaunchEnd::kOutOfMemory;
  most_tries = refused ? kTriesRefused : kTriesBusy;
  outcome.message =
      complaint.empty()
          ? fmt::format("what starts the ranks ended with exit code {} before they met",
                        end.exit_code)
          : complaint;
}

/// What a worker that ended without a result was.
void Classify(const ChildExit& end, LaunchEnd why, const std::string& said, TrialOutcome& outcome) {
  outcome.exit_code = end.exit_code;
  const auto is = [&](TrialState state, const char* message) {
    outcome.state = state;
    outcome.message = message + said;
  };
  switch (why) {
    case LaunchEnd::kTimeLimit:
      // The limit is that of the job that holds the nodes, whichever visit was the last.
      return is(TrialState::kPreempted, "its nodes were held no longer than the job's time limit");
    case LaunchEnd::kNotTaken:
    case LaunchEnd::kPreempted:
      return is(TrialState::kPreempted, "its nodes were given to another job");
    case LaunchEnd::kNodeLost:
      return is(TrialState::kLost, "its node or its job went away");
    case LaunchEnd::kOutOfMemory:
      return is(TrialState::kOutOfMemory, "ended for want of memory on its node");
    case LaunchEnd::kExited:
      break;
  }
  // What started the ranks says of a signal what a shell would.
  const int signal = end.signal != 0 ? end.signal : end.exit_code > 128 ? end.exit_code - 128 : 0;
  if (const char* name = strsignal(signal); signal > 0 && signal < NSIG && name != nullptr) {
    is(TrialState::kCrashed, fmt::format("ended by signal {} ({})", signal, name).c_str());
  } else {
    is(TrialState::kFailed, fmt::format("exit code {} without a result", end.exit_code).c_str());
  }
}

}  // namespace

struct ProcessTrialRunner::Worker {
  std::string key;
  int64_t memory_bytes = 0;
  std::unique_ptr<LaunchedRun> run;
};

ProcessTrialRunner::ProcessTrialRunner(WorkerOptions options) : options_(std::move(options)) {}

ProcessTrialRunner::~ProcessTrialRunner() = default;

LaunchRequest WorkerLaunch(const WorkerOptions& options, const TrialRequest& request,
                           const std::string& config_path) {
  std::error_code error;
  // Of this process, not of whatever will read it.
  const std::string program = std::filesystem::canonical(options.program, error).string();
  if (error) throw EnvironmentError(fmt::format("{}: {}", options.program, error.message()));
  const TrialJob& job = request.job;
  LaunchRequest launch = {.name = request.attempt,
                          .study = request.study,
                          .ranks = job.ranks,
                          .ranks_per_node = request.ranks_per_node,
                          .gpus = job.gpus,
                          .program = program,
                          .arguments = options.arguments,
                          .log_path = request.log_path};
  if (launch.arguments.empty()) launch.arguments = {job.command};
  const std::vector<std::string> own = {"--config", config_path, "--result", request.results_path};
  launch.arguments.insert(launch.arguments.end(), own.begin(), own.end());
  launch.arguments.insert(launch.arguments.end(), job.options.begin(), job.options.end());
  return launch;
}

TrialJob TrainingJob(const RunConfig& run, const MeasureOptions& measure, std::string key) {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  return {
      .key = std::move(key),
      .command = "profile",
      .config = ToJson(run).dump(2) + "\n",
      .options = {"--steps", text(measure.steps), "--warmup", text(measure.warmup), "--max-steps",
                  text(measure.max_steps), "--min-seconds", text(measure.min_seconds),
                  "--stable-mad", text(measure.stable_mad), "--breakdown-visit",
                  text(measure.breakdown_visit), "--max-seconds", text(measure.max_seconds)},
      .ranks = run.layout.world_size(),
      .gpus = run.device != DeviceKind::kCpu};
}

ProcessTrialRunner::Worker& ProcessTrialRunner::Start(const TrialRequest& request) {
  const std::string config_path = request.results_path + ".run.json";
  const LaunchRequest launch = WorkerLaunch(options_, request, config_path);
  AtomicFile config(config_path);
  config.Append(request.job.config);
  config.Commit();
  workers_.push_back(std::unique_ptr<Worker>(new Worker{
      request.job.key, request.memory_bytes + kProcessBytes, options_.launcher->Submit(launch)}));
  return *workers_.back();
}

void ProcessTrialRunner::MakeRoom() {
  int64_t bytes = 0;
  for (const auto& worker : workers_) bytes += worker->memory_bytes;
  // The one visited longest ago is wanted last.
  while (!workers_.empty() && bytes > options_.parked_bytes) {
    bytes -= workers_.front()->memory_bytes;
    workers_.front()->run->Wait();
    workers_.erase(workers_.begin());
  }
}

void ProcessTrialRunner::Release(const std::string& key) {
  for (const auto& worker : workers_) {
    if (worker->key == key) worker->run->Wait();
  }
  std::erase_if(workers_, [&](const auto& worker) { return worker->key == key; });
}

void ProcessTrialRunner::NoteSlow(const std::string& host) {
  if (!options_.launcher->NoteSlow(host)) return;
  for (const auto& worker : workers_) worker->run->Wait();
  workers_.clear();
}

TrialOutcome ProcessTrialRunner::Run(const TrialRequest& request,
                                     const std::function<bool()>& cancelled) {
  const auto stop = [&] {
    return (cancelled && cancelled()) || (request.give_up_waiting && request.give_up_waiting());
  };
  double pause_s = options_.first_retry_s;
  for (int tries = 1;; ++tries) {
    int most_tries = 0;
    const TrialOutcome outcome = Try(request, cancelled, most_tries);
    if (outcome.state != TrialState::kInterrupted || tries >= most_tries) return outcome;
    LogWarning("{}; trying again in {} s", outcome.message, pause_s);
    const Clock::time_point begin = Clock::now();
    while (SecondsSince(begin) < pause_s) {
      if (stop()) return {.state = TrialState::kCancelled, .message = "cancelled"};
      std::this_thread::sleep_for(kPollInterval);
    }
    pause_s = std::min(2 * pause_s, kLongestRetryPauseSeconds);
  }
}

TrialOutcome ProcessTrialRunner::Try(const TrialRequest& request,
                                     const std::function<bool()>& cancelled, int& most_tries) {
  const auto parked = std::find_if(workers_.begin(), workers_.end(),
                                   [&](const auto& each) { return each->key == request.job.key; });
  if (parked != workers_.end() && (*parked)->run->Poll() == LaunchedRun::State::kEnded) {
    workers_.erase(parked);
    return Try(request, cancelled, most_tries);
  }
  if (parked != workers_.end()) std::rotate(parked, parked + 1, workers_.end());
  const int64_t log_offset = LogBytes(request.log_path);
  Worker& worker = parked != workers_.end() ? *workers_.back() : Start(request);
  worker.run->Tell("visit " + request.attempt);
  TrialOutcome outcome = Watch(*worker.run, request, log_offset, cancelled, most_tries);
  if (outcome.state == TrialState::kDone) {
    MakeRoom();
  } else {
    Release(request.job.key);
  }
  return outcome;
}

TrialOutcome ProcessTrialRunner::Watch(LaunchedRun& run, const TrialRequest& request,
                                       int64_t log_offset, const std::function<bool()>& cancelled,
                                       int& most_tries) {
  TrialOutcome outcome;
  int64_t read = -1;  // bytes of the results file that hold no line of this visit
  bool seen = false;
  const auto finished = [&] {
    const int64_t size = LogBytes(request.results_path);
    if (size == read) return false;
    read = size;
    const auto result = FindResult(request.results_path, request.attempt);
    if (!result) return false;
    // A finished line is a finished visit, whatever becomes of the worker afterwards.
    outcome.state = result->state;
    outcome.message = result->message;
    return true;
  };
  const auto said = [&] {
    const std::string last_line = LastLogLine(request.log_path, log_offset);
    return last_line.empty() ? "" : "; it last said: " + last_line;
  };
  Clock::time_point start = Clock::now();
  std::string waits_for;
  bool ended = false;
  bool killed = false;
  while (!finished()) {
    // What a worker writes to a file that was deleted, nobody will read.
    std::error_code ignored;
    const bool there = std::filesystem::exists(request.results_path, ignored);
    if (seen && !there) {
      run.Cancel();
      throw StorageError(request.results_path + ": was deleted while a trial was running");
    }
    seen = there;
    if (ended) {
      // The message first: what the launcher then says of the end is no word of the worker's.
      const std::string last_words = said();
      const ChildExit end = run.Wait();
      if (end.exit_code == static_cast<int>(ExitCode::kStorage)) {
        throw StorageError(last_words.empty()
                               ? request.results_path + ": the trial could not write its result"
                               : LastLogLine(request.log_path, log_offset));
      }
      if (killed) break;
      const LaunchEnd why = run.Classify(LogTail(request.log_path, log_offset));
      if (HasStarted(request.results_path, request.attempt)) {
        Classify(end, why, last_words, outcome);
      } else {
        ClassifyUnstarted(end, why, WhyUnstarted(request, log_offset), outcome, most_tries);
      }
      break;
    }
    const LaunchedRun::State state = run.Poll();
    if (state == LaunchedRun::State::kWaiting) {
      start = Clock::now();  // in the queue, no limit holds
      if (const std::string why = run.WhyWaiting(); why != waits_for) {
        waits_for = why;
        LogInfo("waiting: {}", why);
      }
    }
    const double seconds = SecondsSince(start);
    const bool given_up = state == LaunchedRun::State::kWaiting && request.give_up_waiting &&
                          request.give_up_waiting();
    if (!killed && (given_up || (cancelled && cancelled()))) {
      outcome.state = TrialState::kCancelled;
      outcome.message = "cancelled";
      killed = true;
    } else if (!killed && request.time_limit_s > 0 && seconds > request.time_limit_s) {
      outcome.state = TrialState::kTimedOut;
      outcome.message =
          fmt::format("killed after the time limit of {} s{}", request.time_limit_s, said());
      if (const std::string doing = run.Doing(); !doing.empty()) outcome.message += "; " + doing;
      killed = true;
    }
    if (killed) {
      run.Cancel();
      ended = state == LaunchedRun::State::kWaiting;
    }
    ended = ended || state == LaunchedRun::State::kEnded;
    if (!ended) std::this_thread::sleep_for(kPollInterval);
  }
  if (outcome.state == TrialState::kTimedOut &&
      !HasStarted(request.results_path, request.attempt)) {
    outcome.state = TrialState::kInterrupted;  // no rank of the configuration ever ran
  }
  outcome.seconds = SecondsSince(start);
  if (outcome.state != TrialState::kDone) outcome.exit_code = run.Wait().exit_code;
  return outcome;
}

}  // namespace trimtab
