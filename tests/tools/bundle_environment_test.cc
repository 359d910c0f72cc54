// tools/bundle/environment.sh: where the programs of a bundle look for libraries.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/tools/shell.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;

class BundleEnvironmentTest : public testing::Test {
 protected:
  void SetUp() override {
    cuda_ = fs::path(testing::TempDir()) / "cuda";
    fs::remove_all(cuda_);
    fs::create_directories(cuda_ / "compat");
    std::ofstream(cuda_ / "compat" / "libcuda.so.580.65.06");
  }

  /// `variable` after the script, on a machine whose driver's kernel module is `module`.
  std::string After(const std::string& module, const std::string& variable) const {
    std::ofstream(cuda_ / "module") << module << '\n';
    const Outcome outcome =
        Shell(fmt::format("env -i PATH=/usr/bin:/bin LD_LIBRARY_PATH=/of/caller CUDA_HOME='{0}' "
                          "TRIMTAB_DRIVER_VERSION_FILE='{0}/module' sh -c 'here=/bundle; . "
                          "tools/bundle/environment.sh; echo \"${1}\"'",
                          cuda_.string(), variable));
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return outcome.output;
  }

  fs::path cuda_;
};

TEST_F(BundleEnvironmentTest, AnOlderDriverGetsTheLibraryOfTheCompatPackage) {
  const std::string compat = (cuda_ / "compat").string();
  EXPECT_NE(After("550.54.15", "LD_LIBRARY_PATH").find(compat), std::string::npos);
}

TEST_F(BundleEnvironmentTest, ANewerDriverOrNoneGetsItsOwn) {
  for (const char* module : {"580.65.06", "595.10", "", "none of it"}) {
    const std::string path = After(module, "LD_LIBRARY_PATH");
    EXPECT_EQ(path.find("compat"), std::string::npos) << module << ": " << path;
    EXPECT_NE(path.find("/of/caller"), std::string::npos) << path;
  }
}

TEST_F(BundleEnvironmentTest, OtherProgramsCanHaveTheCallersPath) {
  EXPECT_EQ(After("580.65.06", "TRIMTAB_CALLER_LIBRARIES"), "/of/caller\n");
}

}  // namespace
}  // namespace trimtab
