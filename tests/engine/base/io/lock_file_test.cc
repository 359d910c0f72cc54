#include "engine/base/io/lock_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/error.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

TEST(LockFile, OneHoldsItAtATime) {
  const std::string path = ScratchFolder() + "/new/lock";
  auto lock = LockFile::Take(path);
  ASSERT_NE(lock, nullptr);
  EXPECT_EQ(LockFile::Take(path), nullptr);
  EXPECT_TRUE(std::filesystem::exists(path)) << "who is refused removes nothing";
  EXPECT_TRUE(LockFile::HolderOf(path).starts_with(fmt::format("process {} on ", ::getpid())));
  EXPECT_TRUE(LockFile::HolderRuns(path));
  lock.reset();
  EXPECT_FALSE(LockFile::HolderRuns(path));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(LockFile::HolderOf(path), "");
  EXPECT_NE(LockFile::Take(path), nullptr);
}

TEST(LockFile, OfADeadProcessIsFree) {
  const std::string path = ScratchFolder() + "/lock";
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = LockFile::Take(path);
    ::_exit(lock != nullptr ? 7 : 8);  // runs no destructors
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(LockFile::HolderOf(path).find(fmt::format("process {} on ", child)), 0U);
  EXPECT_FALSE(LockFile::HolderRuns(path));
  const auto next = LockFile::Take(path);
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(LockFile::HolderOf(path).find(fmt::format("process {} on ", ::getpid())), 0U);
}

TEST(LockFile, AProcessOfAnotherMachineIsBelieved) {
  const std::string path = ScratchFolder() + "/lock";
  WriteBytes(path, "process 1 on no-such-machine\n");
  EXPECT_TRUE(LockFile::HolderRuns(path));
}

TEST(LockFile, SaysWhereItCannotBe) {
  const std::string folder = ScratchFolder();
  WriteBytes(folder + "/file", "x");
  EXPECT_NE(MessageOf<StorageError>([&] { LockFile::Take(folder + "/file/lock"); }).find("/file"),
            std::string::npos);
  EXPECT_EQ(MessageOf<StorageError>([&] { LockFile::Take(folder + "/file"); }),
            folder + "/file: is in the way of a lock; expected no such file");
  EXPECT_EQ(ReadBytes(folder + "/file"), "x");
}

}  // namespace
}  // namespace trimtab
