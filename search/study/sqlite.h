// A thin wrapper of SQLite: prepared statements, transactions, and errors that name the file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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

/// A database file this process has to itself: rollback journal, synchronous=FULL, foreign keys,
/// exclusive lock held until destruction.
class Database {
 public:
  /// Throws StorageError (unwritable, corrupt, locked by another process).
  Database(const std::string& path, bool create);
  ~Database();
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

  void set_after_write(std::function<void()> hook) { after_write_ = std::move(hook); }
  /// Tells the hook that something changed, within a transaction or at its end.
  void Changed() {
    if (after_write_) after_write_();
  }

 private:
  /// Throws StorageError when the path no longer names the open file.
  void RequireInPlace();

  std::string path_;
  sqlite3* handle_ = nullptr;
  std::function<void()> after_write_;
};

}  // namespace trimtab
