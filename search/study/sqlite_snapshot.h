// Snapshot: a database file as it is at one moment, copied into memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

struct sqlite3;

namespace trimtab {

/// Opens a database in memory, with what the last whole transaction left in `file`, however that is
/// written to meanwhile. `file`, its journal and its folder stay as they are, and may be read-only.
/// Waits for `patience` where a commit is in progress. Returns SQLite's code.
int OpenSnapshot(const std::string& file, std::chrono::milliseconds patience, sqlite3** memory);

/// Returns true if `file` is made of whole pages: one of a copy that was cut short is not.
bool IsWholePages(const std::string& file, int64_t page_bytes);

/// SQLite's code for a file that is not.
extern const int kCutShort;

}  // namespace trimtab
