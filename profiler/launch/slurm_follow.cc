#include "profiler/launch/slurm_follow.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "engine/base/error.h"
#include "profiler/launch/slurm_client.h"

namespace trimtab {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr Seconds kPause{0.1};
constexpr Seconds kFirstAsk{0.5};
constexpr Seconds kLongestAsk{10};
constexpr double kAskGrowth = 1.2;
constexpr int kNeverTold = 3;  // a controller that has just started may say so at first

/// Passes on what was appended to a file since the last call.
class Tail {
 public:
  explicit Tail(std::string path) : path_(std::move(path)) {}

  std::string Next() {
    std::ifstream file(path_, std::ios::binary);
    if (!file.seekg(offset_)) return "";
    std::string text(std::istreambuf_iterator<char>(file), {});
    offset_ += static_cast<std::streamoff>(text.size());
    return text;
  }

 private:
  const std::string path_;
  std::streamoff offset_ = 0;
};

/// The exit code of a job that is over; nullopt while it is not. `stopped`: on request of this
/// program's user.
std::optional<int> EndOf(const SlurmJob& job, bool stopped) {
  switch (job.phase()) {
    case JobPhase::kCompleted:
    case JobPhase::kFailed:
      return job.exit_code;
    case JobPhase::kCancelled:
      if (stopped) return 128 + SIGINT;
      throw EnvironmentError(fmt::format("job {} was cancelled, and not by this program", job.id));
    case JobPhase::kTimeLimit:
    case JobPhase::kNodeLost:
    case JobPhase::kOutOfMemory:
    case JobPhase::kPreempted:
      throw EnvironmentError(fmt::format("job {} ended: {}", job.id, job.state));
    case JobPhase::kNotStarted:
      throw EnvironmentError(fmt::format("job {} could not be started ({}); scontrol release {}",
                                         job.id, job.reason, job.id));
    default:
      return std::nullopt;
  }
}

}  // namespace

int FollowJob(const std::string& id, const FollowOptions& options) {
  Tail output(options.output_path);
  const auto pass_on = [&] {
    if (const std::string text = output.Next(); !text.empty()) options.on_output(text);
  };
  std::string told;
  Seconds pause = kFirstAsk;
  auto ask_at = std::chrono::steady_clock::now();
  int stops_passed = 0;
  int never = 0;  // how often in a row Slurm said that it cannot start
  while (true) {
    pass_on();
    for (; stops_passed < options.stops(); ++stops_passed) {
      if (stops_passed > 0) {
        CancelJobs({id});
      } else if (const auto steps = FindSteps(id, ""); steps && !steps->empty()) {
        CancelJobs(*steps, "INT");
      } else {
        CancelJobs({id});  // nothing runs yet
      }
      pause = kFirstAsk;
    }
    std::this_thread::sleep_for(kPause);
    if (std::chrono::steady_clock::now() < ask_at) continue;
    bool answered = false;
    const std::optional<SlurmJob> job = ShowJob(id, answered);
    std::string state = "the controller does not answer";
    if (job) {
      const bool waits = job->state == "PENDING";
      state = fmt::format("{}{}", job->state, waits ? " (" + job->reason + ")" : "");
      never = job->phase() == JobPhase::kNeverStarts ? never + 1 : 0;
    }
    if (state != told) {
      options.on_state(fmt::format("job {}: {}", id, state));
      told = state;
      pause = kFirstAsk;
    }
    if (never >= kNeverTold) {
      CancelJobs({id});
      throw EnvironmentError(
          fmt::format("job {} can never start: Slurm says {}; it was cancelled; expected other "
                      "--launcher-options",
                      id, job->reason));
    }
    const std::optional<int> end = job ? EndOf(*job, stops_passed > 0) : std::nullopt;
    if (end || (answered && !job)) {
      pass_on();
      return end.value_or(0);
    }
    pause = std::min(pause * kAskGrowth, kLongestAsk);
    ask_at = std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(pause);
  }
}

}  // namespace trimtab
