// tools/scripts/check_locks: faults of locking that it finds, and code that it lets pass.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

/// A class with a guarded counter and one more function.
std::string Counter(const std::string& function) {
  return fmt::format(R"(#include "engine/base/mutex.h"
namespace trimtab {{
class Counter {{
 public:
  void Add() {{
    MutexLock lock(mutex_);
    lock.Wait(changed_, [this]() TRIMTAB_REQUIRES(mutex_) {{ return count_ < 9; }});
    AddLocked();
  }}
  {}

 private:
  void AddLocked() TRIMTAB_REQUIRES(mutex_) {{ ++count_; }}

  Mutex mutex_;
  std::condition_variable changed_;
  int count_ TRIMTAB_GUARDED_BY(mutex_) = 0;
}};
}}  // namespace trimtab
)",
                     function);
}

class CheckLocksTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Shell("command -v clang++-14 || command -v clang++").status != 0) {
      GTEST_SKIP() << "no clang++ here";
    }
  }

  Outcome Check(const std::string& function) {
    const std::string source = ScratchFolder() + "/counter.cc";
    WriteBytes(source, Counter(function));
    return Shell("tools/scripts/check_locks " + source);
  }
};

TEST_F(CheckLocksTest, PassesWhatHoldsTheMutex) {
  const Outcome outcome = Check("int Get() { const MutexLock lock(mutex_); return count_; }");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST_F(CheckLocksTest, FindsAReadWithoutTheMutex) {
  const Outcome outcome = Check("int Get() { return count_; }");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("reading variable 'count_' requires holding mutex 'mutex_'"),
            std::string::npos)
      << outcome.output;
}

TEST_F(CheckLocksTest, FindsACallWithoutTheMutex) {
  const Outcome outcome = Check("void AddTwice() { AddLocked(); AddLocked(); }");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("calling function 'AddLocked' requires holding mutex 'mutex_'"),
            std::string::npos)
      << outcome.output;
}

TEST_F(CheckLocksTest, FindsAWriteAfterUnlock) {
  const Outcome outcome =
      Check("void Reset() { MutexLock lock(mutex_); lock.Unlock(); count_ = 0; }");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("writing variable 'count_' requires holding mutex 'mutex_'"),
            std::string::npos)
      << outcome.output;
}

}  // namespace
}  // namespace trimtab
