// Commands that run beside a test.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trimtab {

std::string ReadWholeFile(const std::string& path);

/// Starts a command line of the shell, which it replaces; both streams go to the file.
pid_t StartCommand(const std::string& command, const std::string& output);
/// Its exit code; 128 + n when signal n ended it.
int WaitForEnd(pid_t child);
/// The same, if it has ended.
std::optional<int> IfEnded(pid_t child);
/// Processes with `word` in their command line.
std::vector<pid_t> ProcessesWith(const std::string& word);

/// False if the condition did not come true within the limit.
bool WaitFor(std::chrono::seconds limit, const std::function<bool()>& condition);

}  // namespace trimtab
