// Logging: everything for people goes to stderr (and --log-file); stdout is for data only.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

namespace trimtab {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Sets the lowest level shown and, when `file` is not empty, a file that receives a copy.
/// Throws EnvironmentError if the file cannot be opened.
void ConfigureLog(LogLevel level, const std::string& file);

/// Writes one line. Safe from any thread.
void LogLine(LogLevel level, const std::string& line);

template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trimtab
