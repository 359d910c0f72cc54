#include "search/study/sqlite.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

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
  Database database(path_, /*create=*/true);
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
  Database database(path_, /*create=*/true);
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
  { Database(":memory:", /*create=*/true).Execute("CREATE TABLE t (x INTEGER) STRICT"); }
  EXPECT_TRUE(std::filesystem::remove(":memory:"));
  std::filesystem::current_path(before);
}

TEST_F(SqliteTest, ValuesComeBackAsTheyWere) {
  Database database(path_, true);
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
  auto first = std::make_unique<Database>(path_, true);
  EXPECT_NE(ErrorOf([&] { Database(path_, true); }).find(path_ + ": in use by another"),
            std::string::npos);
  first.reset();
  Database second(path_, true);
}

TEST_F(SqliteTest, AFullDiskLosesOnlyTheTransactionThatMetIt) {
  Database database(path_, true);
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
  EXPECT_NE(ErrorOf([&] { Database(path_, true); }).find("not a study, or a damaged one"),
            std::string::npos);
}

TEST_F(SqliteTest, AMissingFolderIsSaid) {
  EXPECT_NE(ErrorOf([&] {
              Database("/nonexistent/x.db", true);
            }).find("/nonexistent/x.db: cannot be opened for writing"),
            std::string::npos);
}

}  // namespace
}  // namespace trimtab
