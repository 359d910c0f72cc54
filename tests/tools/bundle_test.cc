// The portable bundle: unpacked anywhere, under an empty environment, it runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/tools/shell.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;

class BundleTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const fs::path folder = fs::path(testing::TempDir()) / "some folder";  // with a blank
    fs::create_directories(folder);
    const Outcome unpacked =
        Shell(fmt::format("tar -xf tools/trimtab-bundle.tar.xz -C '{}'", folder.string()));
    ASSERT_EQ(unpacked.status, 0) << unpacked.output;
    root_ = folder / "trimtab-bundle";
  }

  /// Of the bundle, from another folder, with nothing set but where a shell finds its tools.
  static Outcome RunBundled(const std::string& command) {
    return Shell(fmt::format("cd / && env -i PATH=/usr/bin:/bin TRIMTAB_RESULTS='{}' '{}'/{}",
                             (fs::path(testing::TempDir()) / "results").string(), root_.string(),
                             command));
  }

  static void AddTest(const std::string& name, const std::string& script) {
    const fs::path path = root_ / "tests" / name;
    std::ofstream(path) << "#!/bin/sh\n" << script;
    fs::permissions(path, fs::perms::owner_all);
  }

  static fs::path root_;
};
fs::path BundleTest::root_;

TEST_F(BundleTest, TheCommandStarts) {
  const Outcome version = RunBundled("trimtab --version");
  EXPECT_EQ(version.status, 0);
  EXPECT_TRUE(version.output.starts_with("trimtab ")) << version.output;
  const Outcome doctor = RunBundled("trimtab doctor --no-speed");
  EXPECT_EQ(doctor.status, 0) << doctor.output;
  // A backend that lacks one of its libraries must not pass for a machine without GPUs.
  EXPECT_EQ(doctor.output.find("cannot load"), std::string::npos) << doctor.output;
}

TEST_F(BundleTest, TheCommandIsFoundThroughALink) {
  const fs::path link = fs::path(testing::TempDir()) / "trimtab-link";
  fs::remove(link);
  fs::create_symlink(root_ / "trimtab", link);
  EXPECT_EQ(Shell(fmt::format("env -i PATH=/usr/bin:/bin '{}' --version", link.string())).status,
            0);
}

TEST_F(BundleTest, LibrariesAreTheBundlesOwn) {
  const Outcome loaded =
      Shell(fmt::format("LD_LIBRARY_PATH='{0}/lib:{0}/lib/compiler' ldd '{0}'/bin/"
                        "trimtab",
                        root_.string()));
  std::istringstream lines(loaded.output);
  int own = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" => ") == std::string::npos) continue;
    const bool c_library = line.find("libc.so") != std::string::npos ||
                           line.find("libm.so") != std::string::npos ||
                           line.find("ld-linux") != std::string::npos;
    EXPECT_TRUE(c_library || line.find(root_.string()) != std::string::npos) << line;
    own += c_library ? 0 : 1;
  }
  EXPECT_GT(own, 3) << loaded.output;
}

TEST_F(BundleTest, RunsATestOfItsOwn) {
  const Outcome checks = RunBundled("run_gpu_checks --tests --without-gpu --only=loader_test");
  EXPECT_EQ(checks.status, 0);
  EXPECT_NE(checks.output.find("\n4 passed, 0 failed\n"), std::string::npos) << checks.output;
}

TEST_F(BundleTest, TheBenchmarkOfKernelsRunsWithoutAGpuToo) {
  const Outcome small = Shell(
      fmt::format("env -i PATH=/usr/bin:/bin sh -c 'here=\"{0}\"; . \"$here/environment.sh\"; exec "
                  "\"$here/benchmarks/kernels_benchmark\" --small'",
                  root_.string()));
  EXPECT_EQ(small.status, 0) << small.output;
  EXPECT_NE(small.output.find("least of copy bandwidth"), std::string::npos) << small.output;
  EXPECT_NE(small.output.find("fp8, split accumulation"), std::string::npos) << small.output;
}

TEST_F(BundleTest, CountsFailuresAndCrashes) {
  AddTest("bundled_one_fails", R"(echo '[       OK ] A.B (1 ms)'
echo '[  FAILED  ] A.C, where GetParam() = 3 (2 ms)'
echo '[  FAILED  ] A.C'
exit 1
)");
  AddTest("bundled_two_crashes", "echo '[       OK ] A.B (1 ms)'; kill -SEGV $$\n");
  const Outcome checks = RunBundled("run_gpu_checks --tests --without-gpu --only=bundled_");
  EXPECT_EQ(checks.status, 1);
  EXPECT_NE(checks.output.find("\n2 passed, 2 failed\n"), std::string::npos) << checks.output;
}

TEST_F(BundleTest, SanitizesTheCasesOfAGpuWithBothTools) {
  const fs::path tools = fs::path(testing::TempDir()) / "fake tools";
  fs::create_directories(tools);
  std::ofstream(tools / "compute-sanitizer") << R"sh(#!/bin/sh
echo "[       OK ] $GTEST_FILTER $2 (1 ms)"
[ "$2" = memcheck ] || exit 99
)sh";
  fs::permissions(tools / "compute-sanitizer", fs::perms::owner_all);
  AddTest("sanitized_one", "exit 0\n");
  const Outcome checks = Shell(
      fmt::format("cd / && env -i PATH='{}':/usr/bin:/bin TRIMTAB_RESULTS='{}' '{}'/run_gpu_checks "
                  "--sanitize --without-gpu --only=sanitized_",
                  tools.string(), (tools / "results").string(), root_.string()));
  EXPECT_EQ(checks.status, 1);
  EXPECT_NE(checks.output.find("sanitized_one.memcheck: 1 passed, 0 failed"), std::string::npos)
      << checks.output;
  EXPECT_NE(checks.output.find("sanitized_one.racecheck: 1 passed, 1 failed"), std::string::npos)
      << checks.output;
}

TEST_F(BundleTest, SaysItsUsage) {
  const Outcome checks = RunBundled("run_gpu_checks --everything");
  EXPECT_EQ(checks.status, 2);
  EXPECT_NE(checks.output.find("usage: run_gpu_checks"), std::string::npos) << checks.output;
}

}  // namespace
}  // namespace trimtab
