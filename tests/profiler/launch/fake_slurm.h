// FakeSlurm: a fixture whose Slurm is scripts.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace trimtab {

/// Slurm's commands as scripts that a test writes.
class FakeSlurm : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "fake_slurm_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = std::getenv("PATH");
    setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
    setenv("FAKE", folder_.c_str(), 1);
    Command("scancel", "echo \"$@\" >> $FAKE/cancelled");
    Command("squeue", "true");
  }
  void TearDown() override { setenv("PATH", path_.c_str(), 1); }

  void Command(const std::string& name, const std::string& script) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  int Count(const std::string& file) const {
    std::ifstream lines(folder_ + "/" + file);
    int count = 0;
    for (std::string line; std::getline(lines, line);) ++count;
    return count;
  }

  std::string folder_;
  std::string path_;
};

}  // namespace trimtab
