#include "profiler/results.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"

namespace trimtab {
namespace {

std::string Path(const std::string& name) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::filesystem::remove(path);
  return path;
}

TrialResult Done(const std::string& attempt) {
  Measurement measurement;
  measurement.step_time_s = 0.1;
  measurement.step_time_mad_s = 0.001;
  measurement.steps_measured = 12;
  measurement.tokens_per_s = 1234.5;
  measurement.tokens_per_s_per_gpu = 617.25;
  measurement.model_tflops_per_gpu = 0.25;
  measurement.peak_mem_bytes = int64_t{1} << 33;
  measurement.memory_bytes = {{"weights", 1}, {"activations", 2}};
  measurement.breakdown_s = {{"gemm", 0.05}, {"all_reduce:dp", 0.01}};
  measurement.losses = {5.5, 5.25};
  return {
      .attempt = attempt, .state = TrialState::kDone, .message = "", .measurement = measurement};
}

TEST(Results, ComeBackAsWritten) {
  const std::string path = Path("round_trip");
  {
    ResultsFile file(path);
    file.Append(Done("a-1"));
    file.Append({.attempt = "a-2",
                 .state = TrialState::kOutOfMemory,
                 .message = "needs \"more\"\nthan there is \xff",
                 .measurement = {}});
  }
  const std::vector<TrialResult> results = ReadResults(path);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].attempt, "a-1");
  ASSERT_TRUE(results[0].measurement.has_value());
  EXPECT_EQ(ToJson(*results[0].measurement), ToJson(*Done("a-1").measurement));
  EXPECT_EQ(results[1].state, TrialState::kOutOfMemory);
  EXPECT_EQ(results[1].message, "needs \"more\"\nthan there is \xef\xbf\xbd");
}

TEST(Results, WhatIsTornSaysNothingAndHarmsNothing) {
  const std::string path = Path("torn");
  ResultsFile(path).Append(Done("a-1"));
  const auto whole = std::filesystem::file_size(path);
  ResultsFile(path).Append(Done("a-2"));
  const auto both = std::filesystem::file_size(path);
  for (auto keep = both - 1; keep > whole; keep -= 37) {
    std::filesystem::resize_file(path, keep);
    EXPECT_EQ(ReadResults(path).size(), 1u);
    ResultsFile(path).Append(Done("a-3"));
    const std::vector<TrialResult> results = ReadResults(path);
    // Cut before its newline alone, the line is whole once another one follows.
    ASSERT_EQ(results.size(), keep == both - 1 ? 3u : 2u) << "kept " << keep;
    EXPECT_EQ(results.back().attempt, "a-3");
  }
}

TEST(Results, LinesThatAreNoResultAreSkipped) {
  const std::string path = Path("foreign");
  std::ofstream(path) << "\n[]\nnull\n{\"schema_version\": \"1\"}\n{\"schema_version\": 2}\n"
                      << R"({"schema_version": 1, "attempt": "x", "state": "done", "message": ""})"
                      << "\n"
                      << R"({"schema_version": 1, "attempt": "x", "state": "odd", "message": ""})"
                      << "\n";
  ResultsFile(path).Append(Done("a-1"));
  const std::vector<TrialResult> results = ReadResults(path);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].attempt, "a-1");
}

TEST(Results, AMissingFileHoldsNone) { EXPECT_TRUE(ReadResults(Path("missing")).empty()); }

TEST(Results, ADriverKnowsWhenWorkersAreGone) {
  const std::string path = Path("locked");
  {
    ResultsFile first(path);
    ResultsFile second(path);  // workers share the file
    second.Append(Done("a-1"));
    first.Append(Done("a-2"));
    EXPECT_FALSE(WorkersGone(path, 0.05));
    EXPECT_THROW(AwaitWorkersGone(path, 0.05), StorageError);
  }
  EXPECT_TRUE(WorkersGone(path, 0));
  AwaitWorkersGone(path, 0);
  EXPECT_EQ(ReadResults(path).size(), 2u);
}

TEST(Results, AnUnwritablePlaceIsAStorageError) {
  EXPECT_THROW(ResultsFile("/nonexistent/results"), StorageError);
}

/// With a limit on the size of files, writes fail as on a full disk.
TEST(Results, AFullDiskLeavesTheFileAsItWas) {
  const std::string path = Path("full");
  ResultsFile(path).Append(Done("a-1"));
  const auto size = std::filesystem::file_size(path);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {size + 20, size + 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    int code = 1;
    try {
      ResultsFile(path).Append(Done("a-2"));
    } catch (const StorageError&) {
      code = 42;
    }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(std::filesystem::file_size(path), size);
  EXPECT_EQ(ReadResults(path).size(), 1u);
}

TEST(Results, StatesHaveNames) {
  for (const TrialState state :
       {TrialState::kDone, TrialState::kOutOfMemory, TrialState::kCrashed, TrialState::kTimedOut,
        TrialState::kFailed, TrialState::kCancelled}) {
    EXPECT_EQ(ParseTrialState(Name(state)), state);
  }
  EXPECT_THROW(ParseTrialState("great"), InputError);
}

}  // namespace
}  // namespace trimtab
