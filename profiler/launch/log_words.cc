#include "profiler/launch/log_words.h"

#include <fmt/core.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <sstream>
#include <string_view>
#include <utility>

namespace trimtab {
namespace {

constexpr size_t kMaxComplaintBytes = 400;
constexpr size_t kLeastFrame = 20;  // dashes

bool IsFrame(std::string_view line) {
  return line.size() >= kLeastFrame && line.find_first_not_of("-=*") == std::string_view::npos;
}

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

/// True for what launchers say of an end, or a wait, without its cause.
bool IsConsequence(std::string_view line) {
  for (const std::string_view words :
       {"Try \"", "srun: got SIG", "srun: Job step aborted", "srun: forcing job termination",
        "srun: job ", "temporarily disabled, retrying", "Force Terminated", "Terminating StepId",
        "Waiting up to"}) {
    if (line.find(words) != std::string_view::npos) return true;
  }
  return false;
}

/// True for a line that says what is wrong, other than a remark.
bool IsComplaint(const std::string& line) {
  static const std::regex kWords(
      "error|fatal|unrecognized|invalid|cannot|could not|unable|no such|not found|denied|fail|"
      "refused|unknown|missing",
      std::regex::icase);
  return std::regex_search(line, kWords);
}

std::string Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin));
}

/// "Killed" as srun writes a signal's name, with its number.
std::string Ended(const std::string& words) {
  const std::string name = words.substr(0, words.find(" (core dumped)"));
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* known = strsignal(signal);
    if (known != nullptr && name == known) return fmt::format("signal {} ({})", signal, name);
  }
  static const std::regex kCode("Exited with exit code ([0-9]{1,3})");
  std::smatch code;
  if (std::regex_search(words, code, kCode)) return "exit code " + code[1].str();
  return words;
}

bool IsNoise(const std::string& line) {
  // Open MPI's daemons sign with [host:process], with or without a job.
  static const std::regex kDaemon(R"(^\[[A-Za-z0-9._-]+:[0-9]+\].*)");
  for (const char* program : {"srun: ", "slurmstepd", "mpirun", "PMIX ERROR", "PMIx "}) {
    if (line.starts_with(program)) return true;
  }
  return line == "Terminated" || line == "Killed" || std::regex_match(line, kDaemon);
}

}  // namespace

std::string FirstComplaint(const std::string& log) {
  std::istringstream lines(log);
  std::string first;   // whatever is said
  std::string framed;  // the paragraph that is being read
  bool in_frame = false;
  for (std::string line; std::getline(lines, line);) {
    const bool frame = IsFrame(line);
    if (!framed.empty() && (frame || IsBlank(line))) return framed.substr(0, kMaxComplaintBytes);
    if (frame) in_frame = !in_frame;
    if (frame || IsBlank(line) || IsConsequence(line)) continue;
    if (!in_frame) {
      if (IsComplaint(line)) return Trimmed(line).substr(0, kMaxComplaintBytes);
    } else if (line.starts_with("WARNING")) {
      while (std::getline(lines, line) && !IsFrame(line)) continue;
      in_frame = false;
      continue;
    } else {
      framed += (framed.empty() ? "" : " ") + Trimmed(line);
    }
    if (first.empty()) first = Trimmed(line);
  }
  return (framed.empty() ? first : framed).substr(0, kMaxComplaintBytes);
}

std::optional<LostRank> FindLostRank(const std::string& log) {
  static const std::regex kLost("srun: error: ([A-Za-z0-9._-]+): tasks? ([0-9]+)[0-9,-]*: (.+)");
  std::istringstream lines(log);
  std::optional<LostRank> first;
  for (std::string line; std::getline(lines, line);) {
    std::smatch lost;
    if (!std::regex_search(line, lost, kLost)) continue;
    LostRank rank = {.rank = std::atoi(lost[2].str().c_str()),
                     .node = lost[1],
                     .how = Ended(Trimmed(lost[3].str()))};
    // Ranks that fail, or are terminated, after it are consequences.
    const bool cause = rank.how.starts_with("signal") && lost[3] != strsignal(SIGTERM);
    if (cause) return rank;
    if (!first) first = std::move(rank);
  }
  return first;
}

std::string LauncherNoise::Filter(const std::string& text) {
  rest_ += text;
  std::string kept;
  size_t begin = 0;
  for (size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = rest_.substr(begin, end - begin);
    if (IsFrame(line)) {
      framed_ = !framed_;
    } else if (!framed_ && !IsNoise(line)) {
      kept += line + "\n";
    }
  }
  rest_.erase(0, begin);
  return kept;
}

std::string LauncherNoise::Flush() {
  const std::string rest = std::exchange(rest_, "");
  return framed_ || IsFrame(rest) || IsNoise(rest) ? "" : rest;
}

}  // namespace trimtab
