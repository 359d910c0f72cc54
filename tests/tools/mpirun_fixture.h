// Commands under mpirun, and the same ones alone.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/engine/comm/mpirun.h"

namespace trimtab {

/// The lines of JSON that a command prints, without their speeds.
std::vector<std::string> JsonLines(const std::string& output);

/// The process that is rank `rank` of a run with `word` in its command line; 0 if there is none.
pid_t ProcessOfRank(int rank, const std::string& word);

class MpirunFixture : public testing::Test {
 protected:
  void SetUp() override;

  /// The path of a run of `layout`, a JSON object, with `more` members, and of those of its model.
  std::string WriteRun(const std::string& layout, const std::string& more = "",
                       const std::string& more_of_model = "");

  /// Runs the command in one process.
  static MpirunResult RunAlone(const std::string& arguments);
  static MpirunResult RunRanks(int ranks, const std::string& arguments);

  std::string folder_;
};

}  // namespace trimtab
