#include "search/study/sqlite.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "engine/base/error.h"
#include "search/study/sqlite_snapshot.h"

namespace trimtab {
namespace {

/// Much more than a reader or a commit takes.
constexpr std::chrono::milliseconds kPatience(60'000);

/// ", process PID" of another process of this machine that holds a lock on the file, by
/// /proc/locks; empty where that names none. (To open the file and ask would drop the locks that
/// this process has on it.)
std::string OwnerOf(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return "";
  const std::string file =
      fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, mode, pid, place;
    words >> number >> kind >> advisory >> mode >> pid >> place;
    const bool here = pid == std::to_string(getpid());
    if (kind == "POSIX" && place == file && !here) return ", process " + pid;
  }
  return "";
}

std::string LockOf(const std::string& path) { return path + ".lock"; }

[[noreturn]] void ThrowMoved(const std::string& path) {
  throw StorageError(path + ": was deleted or replaced while it was in use");
}

[[noreturn]] void ThrowSqlite(sqlite3* database, const std::string& path, int code) {
  const char* detail = database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code);
  if (code == SQLITE_READONLY_DBMOVED) ThrowMoved(path);
  switch (code & 0xff) {  // the primary code; the rest of the bits refine it
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw StorageError(fmt::format(
          "{}: locked for too long by another program{}; expected one that ends its transactions",
          path, OwnerOf(path)));
    case SQLITE_FULL:
      throw StorageError(fmt::format("{}: the disk is full; what was stored before is safe", path));
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      throw StorageError(fmt::format("{}: not a study, or a damaged one ({})", path, detail));
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      throw StorageError(fmt::format("{}: cannot be opened for writing ({})", path, detail));
    default:
      throw StorageError(fmt::format("{}: {}", path, detail));
  }
}

}  // namespace

Statement::Statement(sqlite3* database, const std::string& path, std::string_view sql)
    : database_(database), path_(path) {
  const int code =
      sqlite3_prepare_v2(database_, sql.data(), static_cast<int>(sql.size()), &statement_, nullptr);
  if (code != SQLITE_OK) ThrowSqlite(database_, path_, code);
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::Bind(int index, int64_t value) {
  const int code = sqlite3_bind_int64(statement_, index, value);
  if (code != SQLITE_OK) ThrowSqlite(database_, path_, code);
  return *this;
}

Statement& Statement::Bind(int index, double value) {
  const int code = sqlite3_bind_double(statement_, index, value);
  if (code != SQLITE_OK) ThrowSqlite(database_, path_, code);
  return *this;
}

Statement& Statement::Bind(int index, const std::string& value) {
  const int code = sqlite3_bind_text(statement_, index, value.data(),
                                     static_cast<int>(value.size()), SQLITE_TRANSIENT);
  if (code != SQLITE_OK) ThrowSqlite(database_, path_, code);
  return *this;
}

Statement& Statement::BindNull(int index) {
  const int code = sqlite3_bind_null(statement_, index);
  if (code != SQLITE_OK) ThrowSqlite(database_, path_, code);
  return *this;
}

bool Statement::Step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  ThrowSqlite(database_, path_, code);
}

void Statement::Run() {
  const bool row = Step();
  TRIMTAB_ASSERT(!row, "a statement without rows returned one");
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_, column); }

double Statement::Real(int column) const { return sqlite3_column_double(statement_, column); }

std::string Statement::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) return "";
  return std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

Database::Database(const std::string& path, Access access) : path_(path) {
  // A name such as ":memory:" is a file's here, and not one of SQLite's own.
  const std::string file = path_.starts_with(':') ? "./" + path_ : path_;
  try {
    if (access == Access::kRead) {
      const int code = OpenSnapshot(file, kPatience, &handle_);
      if ((code & 0xff) == SQLITE_CANTOPEN || (code & 0xff) == SQLITE_PERM) {
        throw StorageError(path_ + ": cannot be opened for reading");
      }
      if (code != SQLITE_OK) ThrowSqlite(nullptr, path_, code);
      Execute("PRAGMA query_only = ON");
    } else {
      OpenToWrite(file, access == Access::kCreate);
    }
  } catch (...) {
    sqlite3_close(handle_);
    throw;
  }
}

void Database::OpenToWrite(const std::string& file, bool create) {
  const int flags = SQLITE_OPEN_READWRITE | (create ? SQLITE_OPEN_CREATE : 0);
  const int code = sqlite3_open_v2(file.c_str(), &handle_, flags, nullptr);
  if (code != SQLITE_OK) ThrowSqlite(handle_, path_, code);
  sqlite3_extended_result_codes(handle_, 1);
  const std::string lock = LockOf(file);
  lock_ = LockFile::Take(lock);
  if (lock_ == nullptr) {
    const std::string holder = LockFile::HolderOf(lock);
    throw StorageError(fmt::format("{}: in use by another trimtab{}{}", path_,
                                   holder.empty() ? "" : ", ", holder));
  }
  set_patience(kPatience);
  Execute("PRAGMA journal_mode = DELETE");
  Execute("PRAGMA synchronous = FULL");
  Execute("PRAGMA foreign_keys = ON");
  // Rolled back, it leaves even an empty file as it is. What a killed writer left is undone here.
  Execute("BEGIN IMMEDIATE");
  const bool whole = IsWholePages(file, QueryInt("PRAGMA page_size"));
  Execute("ROLLBACK");
  if (!whole) ThrowSqlite(nullptr, path_, kCutShort);
}

bool Database::HasWriter(const std::string& path) { return LockFile::HolderRuns(LockOf(path)); }

void Database::set_patience(std::chrono::milliseconds patience) {
  sqlite3_busy_timeout(handle_, static_cast<int>(patience.count()));
}

Database::~Database() { sqlite3_close(handle_); }

void Database::Execute(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) ThrowSqlite(handle_, path_, code);
}

int64_t Database::QueryInt(std::string_view sql) {
  Statement statement = Prepare(sql);
  if (!statement.Step())
    throw StorageError(fmt::format("{}: damaged: \"{}\" is empty", path_, sql));
  return statement.Int(0);
}

int64_t Database::last_insert_id() const { return sqlite3_last_insert_rowid(handle_); }

int64_t Database::changes() const { return sqlite3_changes64(handle_); }

void Database::RequireInPlace() {
  // SQLite goes on with a deleted file, and all that it then writes is lost.
  int moved = 0;
  sqlite3_file_control(handle_, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  if (moved != 0) ThrowMoved(path_);
}

void Database::Transaction(const std::function<void()>& body) {
  Execute("BEGIN IMMEDIATE");
  try {
    body();
    Changed();
    Execute("COMMIT");
  } catch (...) {
    // Some errors (a full disk) have rolled back already; then there is nothing left to undo.
    if (sqlite3_get_autocommit(handle_) == 0) {
      sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
    }
    throw;
  }
  RequireInPlace();
  Changed();
}

}  // namespace trimtab
