// The end of a log: what a child said last.
#pragma once

#include <cstdint>
#include <string>

namespace trimtab {

/// 0 where there is no such file.
int64_t LogBytes(const std::string& path);

/// The end, of a few KiB at most, of what was appended since byte `offset`.
std::string LogTail(const std::string& path, int64_t offset = 0);

/// The beginning, of a few KiB at most, of what was appended since byte `offset`.
std::string LogHead(const std::string& path, int64_t offset = 0);

/// Its last line that says something, cut to what fits a message; empty without one.
std::string LastLogLine(const std::string& path, int64_t offset = 0);

}  // namespace trimtab
