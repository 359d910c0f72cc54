#include "search/study/sqlite_snapshot.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/io/scratch_folder.h"

namespace trimtab {

const int kCutShort = SQLITE_CORRUPT;

namespace {

constexpr const char* kSuffixes[] = {"", "-journal"};
/// A writer that begins work undoes first what a killed one left.
constexpr int kMostAttempts = 100;

/// Reads all of `source` in one transaction.
int CopyAll(sqlite3* source, const std::string& file, sqlite3* memory) {
  // From here on the file stays as it is, until the source is closed.
  int code =
      sqlite3_exec(source, "BEGIN; SELECT count(*) FROM sqlite_schema", nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return code;
  int64_t page_bytes = 0;
  const auto keep = [](void* to, int, char** text, char**) {
    *static_cast<int64_t*>(to) = std::strtoll(text[0], nullptr, 10);
    return 0;
  };
  code = sqlite3_exec(source, "PRAGMA page_size", keep, &page_bytes, nullptr);
  if (code != SQLITE_OK) return code;
  if (!IsWholePages(file, page_bytes)) return kCutShort;
  sqlite3_backup* backup = sqlite3_backup_init(memory, "main", source, "main");
  if (backup == nullptr) return sqlite3_extended_errcode(memory);
  // The end of a backup does not tell of a step that was refused, and has copied nothing.
  const int stepped = sqlite3_backup_step(backup, -1);
  const int finished = sqlite3_backup_finish(backup);
  return stepped == SQLITE_DONE ? finished : stepped;
}

int CopyFrom(const std::string& file, int flags, std::chrono::milliseconds patience,
             sqlite3* memory) {
  sqlite3* source = nullptr;
  int code = sqlite3_open_v2(file.c_str(), &source, flags, nullptr);
  if (code == SQLITE_OK) {
    sqlite3_extended_result_codes(source, 1);
    sqlite3_busy_timeout(source, static_cast<int>(patience.count()));
    code = CopyAll(source, file, memory);
  }
  sqlite3_close(source);
  return code;
}

/// Returns what changes with each write to `file` or its journal; nothing where one is missing.
std::optional<std::vector<int64_t>> StampOf(const std::string& file) {
  std::vector<int64_t> stamp;
  for (const char* suffix : kSuffixes) {
    struct stat status {};
    if (stat((file + suffix).c_str(), &status) != 0) return std::nullopt;
    stamp.insert(stamp.end(), {static_cast<int64_t>(status.st_ino), status.st_size,
                               status.st_mtim.tv_sec, status.st_mtim.tv_nsec});
  }
  return stamp;
}

/// Copies what a killed writer left: a file, and the journal that undoes its last changes. Returns
/// false where another writer was faster.
bool CopyLeftovers(const std::string& file, const std::string& copy) {
  const auto before = StampOf(file);
  if (!before) return false;
  for (const char* suffix : kSuffixes) {
    std::error_code error;
    std::filesystem::copy_file(file + suffix, copy + suffix, error);
    if (error == std::errc::no_such_file_or_directory) return false;
    if (error) {
      throw StorageError(
          fmt::format("{}{}: cannot be copied to {}: {}", file, suffix, copy, error.message()));
    }
  }
  return StampOf(file) == before;
}

}  // namespace

int OpenSnapshot(const std::string& file, std::chrono::milliseconds patience, sqlite3** memory) {
  int code = sqlite3_open_v2(":memory:", memory, SQLITE_OPEN_READWRITE, nullptr);
  if (code != SQLITE_OK) return code;
  sqlite3_extended_result_codes(*memory, 1);
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    code = CopyFrom(file, SQLITE_OPEN_READONLY, patience, *memory);
    // A killed writer's journal must be undone first, which only a writer of the file could do.
    if (code != SQLITE_READONLY_ROLLBACK) return code;
    const ScratchFolder scratch;
    const std::string copy = scratch.path() + "/study.db";
    if (CopyLeftovers(file, copy)) {
      return CopyFrom(copy, SQLITE_OPEN_READWRITE, patience, *memory);
    }
  }
  return code;
}

bool IsWholePages(const std::string& file, int64_t page_bytes) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file, error);
  return error || page_bytes <= 0 || bytes % static_cast<uintmax_t>(page_bytes) == 0;
}

}  // namespace trimtab
