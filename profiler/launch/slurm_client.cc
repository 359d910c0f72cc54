#include "profiler/launch/slurm_client.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <string_view>
#include <thread>

#include "engine/base/error.h"
#include "profiler/launch/command_output.h"

namespace trimtab {
namespace {

constexpr double kAnswerSeconds = 30;  // a busy controller takes its time
constexpr double kFirstPauseSeconds = 0.5;
constexpr double kLongestPauseSeconds = 30;
constexpr double kNapSeconds = 0.1;

struct StateRow {
  std::string_view word;
  JobPhase phase;
};
constexpr std::array kStates = {
    StateRow{"PENDING", JobPhase::kWaiting},     StateRow{"CONFIGURING", JobPhase::kWaiting},
    StateRow{"REQUEUED", JobPhase::kWaiting},    StateRow{"REQUEUE_FED", JobPhase::kWaiting},
    StateRow{"RESIZING", JobPhase::kWaiting},    StateRow{"RUNNING", JobPhase::kRunning},
    StateRow{"SUSPENDED", JobPhase::kRunning},   StateRow{"STOPPED", JobPhase::kRunning},
    StateRow{"SIGNALING", JobPhase::kRunning},   StateRow{"STAGE_OUT", JobPhase::kEnding},
    StateRow{"COMPLETING", JobPhase::kEnding},   StateRow{"COMPLETED", JobPhase::kCompleted},
    StateRow{"FAILED", JobPhase::kFailed},       StateRow{"TIMEOUT", JobPhase::kTimeLimit},
    StateRow{"DEADLINE", JobPhase::kTimeLimit},  StateRow{"PREEMPTED", JobPhase::kPreempted},
    StateRow{"NODE_FAIL", JobPhase::kNodeLost},  StateRow{"BOOT_FAIL", JobPhase::kNodeLost},
    StateRow{"REVOKED", JobPhase::kNodeLost},    StateRow{"OUT_OF_MEMORY", JobPhase::kOutOfMemory},
    StateRow{"CANCELLED", JobPhase::kCancelled}, StateRow{"REQUEUE_HOLD", JobPhase::kHeld},
    StateRow{"SPECIAL_EXIT", JobPhase::kHeld},   StateRow{"RESV_DEL_HOLD", JobPhase::kHeld},
};

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

bool IsId(std::string_view text) {
  return !text.empty() && text.size() <= 20 &&
         text.find_first_not_of("0123456789_.+[]") == std::string_view::npos && text[0] >= '0' &&
         text[0] <= '9';
}

/// The word behind " KEY=" of a line of scontrol's.
std::string Field(const std::string& line, const std::string& key) {
  const size_t at = (" " + line).find(" " + key + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size() + 1;
  return line.substr(begin, line.find(' ', begin) - begin);
}

int Number(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Whether Slurm's command failed for want of a controller, not of the request.
bool NoAnswer(const CommandOutput& output) {
  if (output.exit_code == -1) return true;
  for (const char* words :
       {"Unable to contact slurm controller", "Socket timed out", "Connection refused",
        "Connection timed out", "Transport endpoint", "Unable to establish control machine",
        "temporarily unable to accept", "Zero Bytes were transmitted", "Slurm backup controller"}) {
    if (output.error.find(words) != std::string::npos) return true;
  }
  return false;
}

/// Sleeps in short naps. Returns true, at once, where `stopped` is true.
bool SleepUnless(const std::function<bool()>& stopped, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (stopped && stopped()) return true;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(kNapSeconds, seconds)));
  }
  return false;
}

}  // namespace

JobPhase PhaseOf(const std::string& state) {
  const std::string word = state.substr(0, state.find_first_of(" +"));
  for (const StateRow& row : kStates) {
    if (row.word == word) return row.phase;
  }
  return JobPhase::kUnknown;
}

bool NeverEnds(const std::string& reason) {
  // Partitions and associations that refuse it; nodes of this kind that do not exist.
  constexpr std::array kNever = {"PartitionNodeLimit",
                                 "PartitionTimeLimit",
                                 "PartitionConfig",
                                 "BadConstraints",
                                 "InvalidAccount",
                                 "InvalidQOS",
                                 "AccountNotAllowed",
                                 "QOSNotAllowed",
                                 "QOSTimeLimit",
                                 "AssociationTimeLimit",
                                 "DependencyNeverSatisfied",
                                 "ReservationDeleted",
                                 "DeadLine"};
  const std::string word = reason.substr(0, reason.find_first_of(" ,("));
  if (std::find(kNever.begin(), kNever.end(), word) != kNever.end()) return true;
  // What a single job may have. What a user or a group may have is free again when others end.
  const bool limit = word.starts_with("QOS") || word.starts_with("Assoc");
  const auto has = [&word](const char* part) { return word.find(part) != std::string::npos; };
  return limit && (has("PerJob") || has("PerNode") || has("NotSatisfied") || has("QOSMin"));
}

JobPhase SlurmJob::phase() const {
  const JobPhase by_state = PhaseOf(state);
  // It may run on for its grace time, and takes no new step.
  if (by_state == JobPhase::kRunning && preempted) return JobPhase::kEnding;
  if (by_state == JobPhase::kWaiting && NeverEnds(reason)) return JobPhase::kNeverStarts;
  if (by_state != JobPhase::kWaiting) return by_state;
  // squeue and scontrol write it with other signs between the words.
  std::string words = reason;
  std::replace(words.begin(), words.end(), '_', ' ');
  return words.starts_with("launch failed requeued held") ? JobPhase::kNotStarted : by_state;
}

std::vector<SlurmJob> ParseQueue(const std::string& text) {
  std::vector<SlurmJob> jobs;
  for (const std::string& line : Lines(text)) {
    // The reason stands last: it alone may hold anything.
    std::array<std::string, 3> words;
    size_t begin = 0;
    for (std::string& word : words) {
      const size_t end = std::min(line.find('|', begin), line.size());
      word = line.substr(begin, end - begin);
      begin = std::min(end + 1, line.size());
    }
    if (!IsId(words[0]) || words[1].empty() || Number(words[2]) <= 0) continue;
    jobs.push_back({.id = words[0],
                    .state = words[1],
                    .nodes = Number(words[2]),
                    .reason = line.substr(begin)});
  }
  return jobs;
}

std::optional<SlurmJob> ParseJob(const std::string& text) {
  const std::string line = FirstLine(text);
  SlurmJob job = {.id = Field(line, "JobId"),
                  .state = Field(line, "JobState"),
                  .reason = Field(line, "Reason")};
  if (!IsId(job.id) || job.state.empty()) return std::nullopt;
  const std::string exit = Field(line, "ExitCode");  // CODE:SIGNAL
  job.exit_code = Number(exit);
  const size_t colon = exit.find(':');
  const int signal = colon == std::string::npos ? 0 : Number(exit.substr(colon + 1));
  if (signal != 0) job.exit_code = 128 + signal;
  job.restarts = Number(Field(line, "Restarts"));
  // It must belong to this start, not to one before. Both are of the form 2024-05-01T12:00:00.
  const std::string preempted = Field(line, "PreemptTime");
  job.preempted = !preempted.empty() && preempted[0] >= '0' && preempted[0] <= '9' &&
                  preempted >= Field(line, "StartTime");
  if (job.preempted) job.reason = "preempted";
  return job;
}

std::optional<std::vector<SlurmJob>> FindJobs(const std::string& name) {
  const CommandOutput output =
      ReadCommand({"squeue", "--noheader", "--name=" + name,
                   "--user=" + std::to_string(::geteuid()), "--format=%i|%T|%D|%r"},
                  kAnswerSeconds);
  if (output.exit_code != 0) return std::nullopt;
  return ParseQueue(output.out);
}

std::optional<SlurmJob> ShowJob(const std::string& id, bool& answered) {
  const CommandOutput output =
      ReadCommand({"scontrol", "--oneliner", "show", "job", id}, kAnswerSeconds);
  answered = output.exit_code == 0 || output.error.find("Invalid job id") != std::string::npos;
  return output.exit_code == 0 ? ParseJob(output.out) : std::nullopt;
}

std::optional<std::vector<std::string>> FindSteps(const std::string& job, const std::string& name) {
  const CommandOutput output = ReadCommand(
      {"squeue", "--noheader", "--steps", "--job=" + job, "--format=%i|%j"}, kAnswerSeconds);
  if (output.exit_code != 0) return std::nullopt;
  std::vector<std::string> steps;
  for (const std::string& line : Lines(output.out)) {
    const size_t bar = line.find('|');
    const std::string id = line.substr(0, bar);
    if (bar == std::string::npos || !IsId(id) || id.find('.') == std::string::npos) continue;
    if (name.empty() || line.substr(bar + 1) == name) steps.push_back(id);
  }
  return steps;
}

std::string SubmitJob(const std::vector<std::string>& argv, const std::string& name, int64_t nodes,
                      double patience_s, const std::function<bool()>& stopped) {
  double pause_s = kFirstPauseSeconds;
  for (double waited_s = 0;; waited_s += pause_s) {
    const CommandOutput output = ReadCommand(argv, kAnswerSeconds);
    const std::string id = output.out.substr(0, output.out.find_first_of(";\n"));
    if (output.exit_code == 0 && IsId(id)) return id;
    if (!NoAnswer(output) || waited_s >= patience_s) {
      const std::string said = FirstLine(output.error.empty() ? output.out : output.error);
      throw EnvironmentError(
          fmt::format("Slurm refused the job: {}", said.empty() ? "sbatch says nothing" : said));
    }
    if (SleepUnless(stopped, pause_s)) return "";
    // What seemed lost may have arrived.
    for (const SlurmJob& job : FindJobs(name).value_or(std::vector<SlurmJob>())) {
      const bool comes = job.phase() != JobPhase::kEnding && job.phase() != JobPhase::kNotStarted;
      if (job.nodes == nodes && comes) return job.id;
    }
    pause_s = std::min(2 * pause_s, kLongestPauseSeconds);
  }
}

bool CancelJobs(const std::vector<std::string>& ids, const std::string& signal) {
  if (ids.empty()) return true;
  std::vector<std::string> argv = {"scancel"};
  if (!signal.empty()) argv.push_back("--signal=" + signal);
  argv.insert(argv.end(), ids.begin(), ids.end());
  return ReadCommand(argv, kAnswerSeconds).exit_code == 0;
}

}  // namespace trimtab
