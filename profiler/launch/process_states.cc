#include "profiler/launch/process_states.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

namespace trimtab {
namespace {

/// A line of /proc/PID/stat, as far as it is of use here.
struct Process {
  pid_t parent = 0;
  char state = '?';
  std::string name;
};

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// By id; those that end meanwhile are left out.
std::map<pid_t, Process> Processes() {
  std::map<pid_t, Process> processes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string id = entry.path().filename().string();
    pid_t pid = 0;
    const auto parsed = std::from_chars(id.data(), id.data() + id.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != id.data() + id.size()) continue;
    // "PID (NAME) STATE PARENT ...": a name may hold spaces and brackets.
    const std::string text = ReadText(entry.path().string() + "/stat");
    const size_t open = text.find('(');
    const size_t close = text.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close + 4 >= text.size()) {
      continue;
    }
    Process process = {.state = text[close + 2], .name = text.substr(open + 1, close - open - 1)};
    const char* const parent = text.data() + close + 4;
    std::from_chars(parent, text.data() + text.size(), process.parent);
    processes.emplace(pid, std::move(process));
  }
  return processes;
}

std::string Doing(pid_t pid, char state) {
  switch (state) {
    case 'R':
      return "is computing";
    case 'T':
    case 't':
      return "is stopped";
    case 'D':
      return "waits for a device";
    case 'Z':
      return "has ended";
    default:
      break;
  }
  const std::string where = ReadText(fmt::format("/proc/{}/wchan", pid));
  return where.empty() || where == "0" ? "waits" : "waits in " + where;
}

}  // namespace

std::string DescribeProcesses(pid_t root) {
  const std::map<pid_t, Process> processes = Processes();
  std::multimap<pid_t, pid_t> children;
  for (const auto& [pid, process] : processes) children.emplace(process.parent, pid);
  std::string text;
  std::vector<pid_t> left = {root};
  while (!left.empty()) {
    const pid_t pid = left.back();
    left.pop_back();
    const auto [first, last] = children.equal_range(pid);
    for (auto child = first; child != last; ++child) left.push_back(child->second);
    const auto found = processes.find(pid);
    if (found == processes.end() || first != last) continue;
    text += fmt::format("{}{} ({}) {}", text.empty() ? "" : "; ", pid, found->second.name,
                        Doing(pid, found->second.state));
  }
  return text;
}

}  // namespace trimtab
