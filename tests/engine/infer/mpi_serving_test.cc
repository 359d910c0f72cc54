// Ranks that are processes serve as those that are threads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/engine/comm/mpirun.h"

namespace trimtab {
namespace {

struct Case {
  int ranks;
  const char* layout;
  const char* family;
};

TEST(MpiServing, TheFirstProcessGetsTheLogitsOfAll) {
  if (const std::string reason = WhyNoMpirun(); !reason.empty()) GTEST_SKIP() << reason;
  for (const Case& each : {Case{1, "tp=1", "gpt2"},
                           {2, "tp=2", "llama"},
                           {2, "pp=2", "opt_350m"},
                           {4, "tp=2,sp=1,pp=2", "gpt2"},
                           {2, "tp=2,sp=1,ep=2", "mixtral"}}) {
    SCOPED_TRACE(each.layout);
    const MpirunResult result = RunUnderMpirun(
        each.ranks,
        fmt::format("tests/engine/infer/mpi_serving_run {} {}", each.layout, each.family));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_NE(result.output.find("off by "), std::string::npos) << result.output;
  }
}

// The lines that say what was answered.
std::string AnswersOf(const std::string& output) {
  std::istringstream lines(output);
  std::string answers;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("answer ")) answers += line + "\n";
  }
  return answers;
}

// The first process of each replica proposes.
TEST(MpiServing, ADraftChangesNothing) {
  if (const std::string reason = WhyNoMpirun(); !reason.empty()) GTEST_SKIP() << reason;
  const auto run = [](const Case& each, const char* draft) {
    return RunUnderMpirun(each.ranks, fmt::format("tests/engine/infer/mpi_serving_run {} {} {}",
                                                  each.layout, each.family, draft));
  };
  for (const Case& each : {Case{2, "tp=2", "llama"},
                           {2, "pp=2", "llama"},
                           {4, "tp=2,dp=2", "llama"},
                           {4, "tp=2,sp=1,ep=2,dp=2", "mixtral"}}) {
    SCOPED_TRACE(each.layout);
    const MpirunResult alone = run({1, "tp=1", each.family}, "gpt2");
    ASSERT_EQ(alone.exit_code, 0) << alone.output;
    ASSERT_NE(AnswersOf(alone.output), "") << alone.output;
    const MpirunResult together = run(each, "gpt2");
    EXPECT_EQ(together.exit_code, 0) << together.output;
    EXPECT_EQ(AnswersOf(together.output), AnswersOf(alone.output));
    // A model foresees itself.
    const MpirunResult itself = run(each, each.family);
    EXPECT_EQ(AnswersOf(itself.output), AnswersOf(alone.output));
    EXPECT_EQ(itself.output.find("\n0 of "), std::string::npos) << itself.output;
  }
}

// Replicas that are processes hand sequences over to others, which go on with them.
TEST(MpiServing, PromptsOnReplicasOfTheirOwnChangeNothing) {
  if (const std::string reason = WhyNoMpirun(); !reason.empty()) GTEST_SKIP() << reason;
  struct Apart {
    Case ranks;
    int prefill;
  };
  for (const Apart& each : {Apart{{2, "dp=2", "llama"}, 1},
                            {{3, "dp=3", "llama"}, 2},
                            {{4, "tp=2,dp=2", "llama"}, 1},
                            {{4, "pp=2,dp=2", "gpt2"}, 1},
                            {{4, "tp=2,sp=1,ep=2,dp=2", "mixtral"}, 1},
                            {{4, "dp=4", "qwen2"}, 1}}) {
    SCOPED_TRACE(each.ranks.layout);
    const auto run = [&each](int ranks, const char* layout, int prefill) {
      return RunUnderMpirun(ranks, fmt::format("tests/engine/infer/mpi_serving_run {} {} {}",
                                               layout, each.ranks.family, prefill));
    };
    const MpirunResult alone = run(1, "tp=1", 0);
    ASSERT_EQ(alone.exit_code, 0) << alone.output;
    ASSERT_NE(AnswersOf(alone.output), "") << alone.output;
    const MpirunResult apart = run(each.ranks.ranks, each.ranks.layout, each.prefill);
    EXPECT_EQ(apart.exit_code, 0) << apart.output;
    EXPECT_EQ(AnswersOf(apart.output), AnswersOf(alone.output));
    EXPECT_NE(apart.output.find("\n6 moved"), std::string::npos) << apart.output;
  }
}

TEST(MpiServing, AWorldOfAnotherSizeIsRefused) {
  if (const std::string reason = WhyNoMpirun(); !reason.empty()) GTEST_SKIP() << reason;
  const MpirunResult result = RunUnderMpirun(2, "tests/engine/infer/mpi_serving_run tp=4 gpt2");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.output.find("expected mpirun -n 4"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace trimtab
