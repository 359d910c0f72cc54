#include "search/study/sqlite.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "engine/base/error.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

class SqliteTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::string(std::getenv("TEST_TMPDIR")) + "/" + info->name() + ".db";
    std::filesystem::remove(path_);
    std::filesystem::remove(path_ + "-journal");
  }

  /// The files beside the database and itself, whole.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    for (const char* suffix : {"", "-journal", "-wal", "-shm", ".lock"}) {
      if (std::filesystem::exists(path_ + suffix)) files[suffix] = ReadBytes(path_ + suffix);
    }
    return files;
  }

  int64_t SumNow() const {
    return Database(path_, Access::kRead).QueryInt("SELECT coalesce(sum(x), 0) FROM t");
  }

  std::string ErrorOf(const std::function<void()>& body) {
    try {
      body();
    } catch (const StorageError& error) {
      return error.what();
    }
    return "no error";
  }

  std::string path_;
};

TEST_F(SqliteTest, TransactionsAreAllOrNothing) {
  Database database(path_, Access::kCreate);
  database.Execute("CREATE TABLE t (x INTEGER) STRICT");
  database.Transaction([&] { database.Execute("INSERT INTO t VALUES (1)"); });
  EXPECT_THROW(database.Transaction([&] {
    database.Execute("INSERT INTO t VALUES (2)");
    throw std::runtime_error("stop");
  }),
               std::runtime_error);
  EXPECT_EQ(database.QueryInt("SELECT count(*) FROM t"), 1);
}

// SQLite goes on with a file that nobody can open any more.
TEST_F(SqliteTest, AFileThatWasDeletedIsNoStudy) {
  Database database(path_, Access::kCreate);
  database.Execute("CREATE TABLE t (x INTEGER) STRICT");
  const auto insert = [&] {
    database.Transaction([&] { database.Execute("INSERT INTO t VALUES (1)"); });
  };
  insert();
  std::filesystem::rename(path_, path_ + ".elsewhere");
  EXPECT_EQ(MessageOf<StorageError>(insert),
            path_ + ": was deleted or replaced while it was in use");
  std::filesystem::rename(path_ + ".elsewhere", path_);
  insert();
}

TEST_F(SqliteTest, ANameOfSqlitesOwnIsAFile) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(std::filesystem::path(path_).parent_path());
  { Database(":memory:", Access::kCreate).Execute("CREATE TABLE t (x INTEGER) STRICT"); }
  EXPECT_TRUE(std::filesystem::remove(":memory:"));
  std::filesystem::current_path(before);
}

TEST_F(SqliteTest, ValuesComeBackAsTheyWere) {
  Database database(path_, Access::kCreate);
  database.Execute("CREATE TABLE t (a INTEGER, b REAL, c TEXT, d TEXT) STRICT");
  const std::string text("a\0b \"quoted\" \xc3\xa9", 14);
  database.Prepare("INSERT INTO t VALUES (?1, ?2, ?3, ?4)")
      .Bind(1, int64_t{1} << 40)
      .Bind(2, 0.1)
      .Bind(3, text)
      .BindNull(4)
      .Run();
  Statement query = database.Prepare("SELECT * FROM t");
  ASSERT_TRUE(query.Step());
  EXPECT_EQ(query.Int(0), int64_t{1} << 40);
  EXPECT_EQ(query.Real(1), 0.1);
  EXPECT_EQ(query.Text(2), text);
  EXPECT_TRUE(query.IsNull(3));
  EXPECT_FALSE(query.Step());
}

TEST_F(SqliteTest, ASecondOpenIsRefusedWhileTheFirstLives) {
  auto first = std::make_unique<Database>(path_, Access::kCreate);
  EXPECT_TRUE(Database::HasWriter(path_));
  EXPECT_NE(ErrorOf([&] { Database(path_, Access::kCreate); }).find(path_ + ": in use by another"),
            std::string::npos);
  first.reset();
  Database second(path_, Access::kCreate);
}

TEST_F(SqliteTest, AReaderSeesWhatIsCommitted) {
  Database writer(path_, Access::kCreate);
  writer.Execute("CREATE TABLE t (x INTEGER) STRICT");
  writer.Execute("INSERT INTO t VALUES (1)");
  Database early(path_, Access::kRead);
  writer.Transaction([&] {
    writer.Execute("INSERT INTO t VALUES (10)");
    EXPECT_EQ(SumNow(), 1) << "the transaction is not done";
  });
  EXPECT_EQ(SumNow(), 11);
  EXPECT_EQ(early.QueryInt("SELECT sum(x) FROM t"), 1) << "of the moment at which it was opened";
}

TEST_F(SqliteTest, AReaderChangesNothing) {
  { Database(path_, Access::kCreate).Execute("CREATE TABLE t (x INTEGER) STRICT"); }
  const auto before = Files();
  EXPECT_EQ(before.size(), 1U);
  std::filesystem::permissions(path_, std::filesystem::perms::owner_read);
  EXPECT_EQ(SumNow(), 0);
  Database reader(path_, Access::kRead);
  EXPECT_NE(ErrorOf([&] { reader.Execute("INSERT INTO t VALUES (1)"); }), "no error");
  EXPECT_EQ(Files(), before);
  EXPECT_EQ(ErrorOf([&] { Database(path_ + "none", Access::kRead); }),
            path_ + "none: cannot be opened for reading");
  EXPECT_FALSE(std::filesystem::exists(path_ + "none"));
}

// Half of what a killed writer changed is in the file, and the journal undoes it.
TEST_F(SqliteTest, AReaderOfWhatAKilledWriterLeftSeesTheLastCommit) {
  {
    Database database(path_, Access::kCreate);
    database.Execute("CREATE TABLE t (x INTEGER, filler BLOB) STRICT");
    database.Execute(
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 200) "
        "INSERT INTO t SELECT 1, zeroblob(2000) FROM n");
  }
  const std::string whole = ReadBytes(path_);
  const pid_t child = fork();
  if (child == 0) {
    Database database(path_, Access::kWrite);
    database.Execute("PRAGMA cache_size = 2; BEGIN; UPDATE t SET x = 2");
    kill(getpid(), SIGKILL);
    _exit(1);
  }
  waitpid(child, nullptr, 0);
  const auto left = Files();
  ASSERT_TRUE(left.at("") != whole) << "the writer has written nothing yet";
  ASSERT_TRUE(left.contains("-journal"));
  EXPECT_EQ(SumNow(), 200);
  EXPECT_TRUE(Files() == left) << "a reader leaves it to the next writer";
  Database writer(path_, Access::kWrite);
  EXPECT_EQ(SumNow(), 200);
  writer.Execute("UPDATE t SET x = 3");
  EXPECT_EQ(SumNow(), 600);
}

// Another program's reader, such as a shell of sqlite3, may read, and may not stop a search.
TEST_F(SqliteTest, AWriterDoesNotWaitForAReaderForEver) {
  Database writer(path_, Access::kCreate);
  writer.Execute("CREATE TABLE t (x INTEGER) STRICT");
  sqlite3* shell = nullptr;
  ASSERT_EQ(sqlite3_open_v2(path_.c_str(), &shell, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  const auto run = [&](const char* sql) {
    return sqlite3_exec(shell, sql, nullptr, nullptr, nullptr);
  };
  ASSERT_EQ(run("BEGIN; SELECT * FROM t"), SQLITE_OK);
  writer.set_patience(std::chrono::milliseconds(10));
  const auto insert = [&] {
    writer.Transaction([&] { writer.Execute("INSERT INTO t VALUES (1)"); });
  };
  EXPECT_NE(ErrorOf(insert).find("locked for too long by another program"), std::string::npos);
  EXPECT_EQ(SumNow(), 0);
  ASSERT_EQ(run("COMMIT"), SQLITE_OK);
  insert();
  EXPECT_EQ(SumNow(), 1);
  EXPECT_EQ(run("SELECT * FROM t"), SQLITE_OK);
  sqlite3_close(shell);
}

// A killed writer leaves its lock file. A copy of the file, made with the study, holds no lock.
TEST_F(SqliteTest, ALockFileWithoutAHolderIsTakenOver) {
  WriteBytes(path_ + ".lock", "process 1 on elsewhere\n");
  { Database writer(path_, Access::kCreate); }
  EXPECT_FALSE(Database::HasWriter(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".lock"));
}

TEST_F(SqliteTest, AFullDiskLosesOnlyTheTransactionThatMetIt) {
  Database database(path_, Access::kCreate);
  database.Execute("CREATE TABLE t (x TEXT) STRICT");
  database.Transaction([&] { database.Execute("INSERT INTO t VALUES ('kept')"); });
  database.QueryInt("PRAGMA max_page_count = 4");
  const std::string error = ErrorOf([&] {
    database.Transaction([&] {
      database.Execute("INSERT INTO t VALUES ('lost')");
      database.Execute("INSERT INTO t VALUES (hex(zeroblob(100000)))");
    });
  });
  EXPECT_EQ(error, path_ + ": the disk is full; what was stored before is safe");
  EXPECT_EQ(database.QueryInt("SELECT count(*) FROM t"), 1);
}

TEST_F(SqliteTest, GarbageIsCalledGarbage) {
  std::ofstream(path_) << std::string(5000, 'x');
  EXPECT_NE(
      ErrorOf([&] { Database(path_, Access::kCreate); }).find("not a study, or a damaged one"),
      std::string::npos);
}

TEST_F(SqliteTest, AMissingFolderIsSaid) {
  EXPECT_NE(ErrorOf([&] {
              Database("/nonexistent/x.db", Access::kCreate);
            }).find("/nonexistent/x.db: cannot be opened for writing"),
            std::string::npos);
}

}  // namespace
}  // namespace trimtab
