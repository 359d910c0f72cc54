// A thin wrapper of SQLite: prepared statements, transactions, and errors that name the file.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/io/lock_file.h"

struct sqlite3;
struct sqlite3_stmt;

namespace trimtab {

/// A prepared statement. Parameters are numbered from 1, columns from 0, as in SQLite.
class Statement {
 public:
  Statement(sqlite3* database, const std::string& path, std::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Bind(int index, int64_t value);
  Statement& Bind(int index, double value);
  Statement& Bind(int index, const std::string& value);
  Statement& BindNull(int index);

  /// Advances to the next row; false when there is none left.
  bool Step();
  /// For statements without rows: runs, then resets for the next use.
  void Run();

  bool IsNull(int column) const;
  int64_t Int(int column) const;
  double Real(int column) const;
  std::string Text(int column) const;

 private:
  sqlite3* database_;
  const std::string& path_;
  sqlite3_stmt* statement_ = nullptr;
};

/// The ways to open a database file.
enum class Access {
  kCreate,  // to write; the file is made where there is none
  kWrite,   // to write
  kRead,    // to read what it holds now, while others may write
};

/// A database file. Its one writer holds PATH.lock until destruction, and writes with a rollback
/// journal, synchronous=FULL and foreign keys; readers may come and go meanwhile. A reader has a
/// copy in memory, of the moment at which it opened the file: a commit waits only while that copy
/// is made. A reader changes no file.
class Database {
 public:
  /// Throws StorageError (unwritable, corrupt, written by another process).
  Database(const std::string& path, Access access);
  ~Database();
  /// Returns true if a process has the file at `path` open to write. Does not open it.
  static bool HasWriter(const std::string& path);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::string& path() const { return path_; }
  Statement Prepare(std::string_view sql) { return Statement(handle_, path_, sql); }
  /// Runs statements that return nothing.
  void Execute(const std::string& sql);
  /// The first column of the first row, which must exist.
  int64_t QueryInt(std::string_view sql);
  int64_t last_insert_id() const;
  /// Rows the last statement changed.
  int64_t changes() const;

  /// Runs `body` in one transaction: all of it is on disk afterwards, or none of it if it throws.
  void Transaction(const std::function<void()>& body);

  /// Sets how long a commit waits for programs that read the file, before it throws.
  void set_patience(std::chrono::milliseconds patience);

  void set_after_write(std::function<void()> hook) { after_write_ = std::move(hook); }
  /// Tells the hook that something changed, within a transaction or at its end.
  void Changed() {
    if (after_write_) after_write_();
  }

 private:
  void OpenToWrite(const std::string& file, bool create);
  /// Throws StorageError when the path no longer names the open file.
  void RequireInPlace();

  std::string path_;
  std::unique_ptr<LockFile> lock_;  // of a writer; let go after the file is closed
  sqlite3* handle_ = nullptr;
  std::function<void()> after_write_;
};

}  // namespace trimtab
