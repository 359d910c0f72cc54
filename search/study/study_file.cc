#include "search/study/study_file.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "search/study/sqlite.h"

namespace trimtab {
namespace {

// What every SQLite file begins with, and where its numbers are (big-endian).
constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr size_t kHeaderBytes = 100;
constexpr size_t kApplicationId = 68;

constexpr const char* kJournal = "-journal";  // of SQLite, while a transaction is not done

/// Returns true if the file's header says that it is a study. SQLite itself would take a lock, and
/// fail where another process has one.
bool LooksLikeStudy(const std::string& path) {
  std::array<char, kHeaderBytes> header{};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(header.data(), header.size())) return false;
  if (std::string_view(header.data(), kMagic.size()) != kMagic) return false;
  uint32_t application = 0;
  for (size_t i = 0; i < 4; ++i) {
    application = application << 8 | static_cast<uint8_t>(header[kApplicationId + i]);
  }
  return application == kStudyApplicationId;
}

}  // namespace

void RequireNewOrResumed(const std::string& path, bool resume) {
  if (path.empty()) throw UsageError("--study: the name is empty; expected a file");
  const std::string other = OtherThanAFile(path);
  if (!other.empty()) throw StorageError(fmt::format("{}: not a study: it is {}", path, other));
  if (resume || HoldsNoStudy(path) || IsEmptyStudy(path)) return;
  if (!LooksLikeStudy(path)) {
    throw StorageError(fmt::format("{}: not a study; name another file with --study", path));
  }
  throw UsageError(fmt::format(
      "{}: already exists; continue it with --resume, or name another file with --study", path));
}

bool HoldsNoStudy(const std::string& path) {
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  return !there || (std::filesystem::file_size(path, error) == 0 && !error);
}

bool IsEmptyStudy(const std::string& path) {
  if (!OtherThanAFile(path).empty() || HoldsNoStudy(path)) return false;
  std::error_code ignored;
  const bool cut_short = std::filesystem::exists(path + kJournal, ignored);
  // A study that was being made may lack its first pages, but it has its journal.
  if (!LooksLikeStudy(path) && !cut_short) return false;
  try {
    Database database(path, Access::kWrite);
    if (database.QueryInt("PRAGMA page_count") == 0) return true;
    return database.QueryInt("PRAGMA application_id") == kStudyApplicationId &&
           database.QueryInt("SELECT count(*) FROM study WHERE enumerated <> 0") == 0 &&
           database.QueryInt("SELECT count(*) FROM candidates") == 0 &&
           database.QueryInt("SELECT count(*) FROM attempts") == 0;
  } catch (const StorageError&) {
    return false;  // in use, damaged, or of another program: said when it is opened
  }
}

void RemoveEmptyStudy(const std::string& path) {
  if (!IsEmptyStudy(path)) return;
  std::error_code ignored;
  for (const char* suffix : {"", kJournal, ".results.jsonl", ".log"}) {
    std::filesystem::remove(path + suffix, ignored);
  }
}

}  // namespace trimtab
