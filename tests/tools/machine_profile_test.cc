#include "tools/cli/machine_profile.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "cost_model/hardware/cluster.h"
#include "engine/base/error.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

class MachineProfileTest : public testing::Test {
 protected:
  MachineProfileTest() {
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    profile_ = BuiltinProfile("cpu");
    profile_.measured_on = DescribeThisMachine() + ", 2026-11-22";
  }

  /// The profile that a search would take, and what it says on stderr.
  HardwareProfile Get(const std::string& path) {
    testing::internal::CaptureStderr();
    const auto measure = [this] {
      ++measured_;
      return profile_;
    };
    HardwareProfile profile = MachineProfile(path, measure);
    said_ = testing::internal::GetCapturedStderr();
    return profile;
  }

  std::string folder_ = ScratchFolder();
  HardwareProfile profile_;
  int measured_ = 0;
  std::string said_;
};

TEST_F(MachineProfileTest, IsNamedAfterProcessorCoresAndVersion) {
  const std::string path = MachineProfilePath();
  EXPECT_TRUE(path.starts_with(folder_ + "/trimtab/")) << path;
  EXPECT_NE(path.find("-cores-"), std::string::npos) << path;
  EXPECT_TRUE(path.ends_with(".json")) << path;
  EXPECT_EQ(path.find_first_of(" ()@"), std::string::npos) << path;
}

TEST_F(MachineProfileTest, HomeStandsInForTheCacheFolder) {
  ::unsetenv("XDG_CACHE_HOME");
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  ::setenv("HOME", folder_.c_str(), 1);
  EXPECT_TRUE(MachineProfilePath().starts_with(folder_ + "/.cache/trimtab/"));
  Get(MachineProfilePath());
  Get(MachineProfilePath());
  EXPECT_NE(said_.find("2026-11-22: ~/.cache/trimtab/"), std::string::npos) << said_;
  ::unsetenv("HOME");
  EXPECT_EQ(MachineProfilePath(), "");
  EXPECT_THROW(PrepareMachineProfilePath(), UsageError);
  ::setenv("HOME", home.c_str(), 1);
}

TEST_F(MachineProfileTest, IsMeasuredOnceAndSaysSoBothTimes) {
  EXPECT_EQ(Get(MachineProfilePath()), profile_);
  EXPECT_NE(said_.find("measuring this machine"), std::string::npos) << said_;
  EXPECT_EQ(Get(MachineProfilePath()), profile_);
  EXPECT_NE(said_.find("using the profile of this machine measured on 2026-11-22"),
            std::string::npos)
      << said_;
  EXPECT_EQ(measured_, 1);
}

TEST_F(MachineProfileTest, ADamagedFileIsMeasuredAnew) {
  const std::string path = PrepareMachineProfilePath();
  WriteBytes(path, "{\"schema_version\": 1");
  EXPECT_EQ(Get(path), profile_);
  EXPECT_NE(said_.find("damaged"), std::string::npos) << said_;
  Get(path);
  EXPECT_EQ(measured_, 1);
}

TEST_F(MachineProfileTest, AnotherMachinesFileIsNotUsed) {
  const std::string path = PrepareMachineProfilePath();
  HardwareProfile other = profile_;
  other.measured_on = "another processor, 96 cores, 2026-11-22";
  SaveHardwareProfile(other, path);
  EXPECT_EQ(Get(path), profile_);
  EXPECT_NE(said_.find("another machine"), std::string::npos) << said_;
}

TEST_F(MachineProfileTest, AFolderThatCannotBeWrittenToCostsAWarning) {
  WriteBytes(folder_ + "/trimtab", "a file where the folder would be");
  EXPECT_EQ(Get(MachineProfilePath()), profile_);
  EXPECT_NE(said_.find("is not kept"), std::string::npos) << said_;
  EXPECT_THROW(PrepareMachineProfilePath(), StorageError);
}

TEST_F(MachineProfileTest, WorksWithoutACache) {
  EXPECT_EQ(Get(""), profile_);
  EXPECT_EQ(Get(""), profile_);
  EXPECT_EQ(measured_, 2);
}

}  // namespace
}  // namespace trimtab
