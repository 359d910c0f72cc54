#include "engine/comm/library_versions.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

constexpr char kLibrary[] = "tests/engine/comm/libbroken.so";

/// What is found of a library of these names.
FoundLibrary Ask(const std::vector<std::string>& names, double patience_s = 60,
                 const std::string& symbol = "TestVersion") {
  const auto ask = [](void* function, FoundLibrary& found) {
    int number = 0;
    reinterpret_cast<int (*)(int*)>(function)(&number);
    found.number = number;
    found.version = "some";
  };
  return AskLibraries({{"", names, symbol, ask}}, patience_s)[0];
}

class LibraryVersionsTest : public testing::Test {
 protected:
  ~LibraryVersionsTest() override { ::unsetenv("TRIMTAB_TEST_LIBRARY"); }

  static void Misbehave(const char* how) { ::setenv("TRIMTAB_TEST_LIBRARY", how, 1); }
};

TEST_F(LibraryVersionsTest, AsksTheFirstThatIsThere) {
  testing::internal::CaptureStdout();
  const FoundLibrary found = Ask({"libnothing.so.1", kLibrary});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "") << "a library's noise";
  EXPECT_TRUE(found.usable());
  EXPECT_EQ(found.version, "some");
  EXPECT_EQ(found.number, 22703);
  EXPECT_EQ(found.problem, "");
  EXPECT_NE(found.path.find("libbroken.so"), std::string::npos) << found.path;
}

TEST_F(LibraryVersionsTest, AMissingLibraryIsNoProblem) {
  const FoundLibrary found = Ask({"libnothing.so.1", "/nowhere/libnothing.so"});
  EXPECT_FALSE(found.usable());
  EXPECT_EQ(found.problem, "");
  EXPECT_EQ(found.path, "");
}

TEST_F(LibraryVersionsTest, SaysWhyALibraryIsOfNoUse) {
  const std::string folder = ScratchFolder();
  WriteBytes(folder + "/libtext.so", "not a library");
  WriteBytes(folder + "/libcut.so", ReadBytes(kLibrary).substr(0, 1000));
  for (const char* file : {"/libtext.so", "/libcut.so"}) {
    const FoundLibrary found = Ask({folder + file});
    EXPECT_FALSE(found.usable()) << file;
    EXPECT_NE(found.problem, "") << file;
  }
  EXPECT_NE(Ask({kLibrary}, 60, "Nothing").problem.find("has no Nothing"), std::string::npos);
}

TEST_F(LibraryVersionsTest, SurvivesALibraryThatCrashes) {
  for (const char* how : {"crash when loaded", "crash when asked"}) {
    Misbehave(how);
    EXPECT_EQ(Ask({kLibrary}).problem, "it crashed (Aborted)") << how;
  }
}

TEST_F(LibraryVersionsTest, DoesNotWaitForALibraryThatHangs) {
  Misbehave("hang");
  EXPECT_EQ(Ask({kLibrary}, 0.2).problem, "it did not answer in time");
}

// Whatever this machine has, the answer comes quickly and is complete.
TEST_F(LibraryVersionsTest, FindsTheLibrariesOfThisMachine) {
  const auto start = std::chrono::steady_clock::now();
  const LibraryVersions found = FindLibraryVersions();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  for (const FoundLibrary& each :
       {found.cuda_driver, found.cuda_runtime, found.cudnn, found.nccl, found.mpi}) {
    EXPECT_EQ(each.usable(), !each.path.empty()) << each.path << each.problem;
    EXPECT_TRUE(!each.usable() || each.problem.empty()) << each.problem;
  }
}

}  // namespace
}  // namespace trimtab
