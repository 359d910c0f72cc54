// Commands whose ranks are processes that mpirun started: the same results as with threads, and one
// clear line when they cannot run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "engine/base/io/backend_file.h"
#include "engine/base/io/lock_file.h"
#include "engine/families/load_config.h"
#include "profiler/results.h"
#include "profiler/trial.h"
#include "tests/tools/mpirun_fixture.h"
#include "tests/tools/processes.h"

namespace trimtab {
namespace {

class MpirunTest : public MpirunFixture {};

/// Expects that one rank of each visit alone writes that they have met, and how it ended.
void ExpectOneResultEach(const std::vector<std::string>& attempts, const std::string& path) {
  const std::string written = ReadWholeFile(path);
  EXPECT_EQ(std::ranges::count(written, '\n'), 2 * std::ssize(attempts)) << written;
  const std::vector<TrialResult> results = ReadResults(path);
  ASSERT_EQ(results.size(), attempts.size()) << written;
  for (size_t i = 0; i < attempts.size(); ++i) {
    EXPECT_TRUE(HasStarted(path, attempts[i])) << written;
    EXPECT_EQ(results[i].attempt, attempts[i]);
    EXPECT_EQ(results[i].state, TrialState::kDone) << written;
  }
}

TEST_F(MpirunTest, TrainsToTheBitsOfThreads) {
  for (const char* layout : {R"({"tp": 2})", R"({"tp": 2, "sp": true})", R"({"dp": 2, "zero": 1})",
                             R"({"dp": 2, "precision": "bf16"})", R"({"tp": 2, "dp": 2})",
                             R"({"pp": 2, "schedule": "zero-bubble"})",
                             R"({"pp": 2, "vp": 2, "schedule": "interleaved-1f1b"})"}) {
    const std::string arguments = "train --json --quiet --config " + WriteRun(layout);
    const int ranks = std::string(layout) == R"({"tp": 2, "dp": 2})" ? 4 : 2;
    const MpirunResult threads = RunAlone(arguments);
    const MpirunResult processes = RunRanks(ranks, arguments);
    ASSERT_EQ(threads.exit_code, 0) << threads.output;
    ASSERT_EQ(processes.exit_code, 0) << processes.output;
    EXPECT_EQ(JsonLines(processes.output).size(), 5u) << processes.output;
    EXPECT_EQ(JsonLines(processes.output), JsonLines(threads.output)) << layout;
  }
}

TEST_F(MpirunTest, TakesTokensToTheExpertsOfOtherProcesses) {
  const std::string moe = R"(, "moe": {"num_experts": 4, "router_topk": 2, "ffn_hidden_size": 16})";
  for (const auto& [ranks, layout] :
       {std::pair{2, R"({"dp": 2, "ep": 2})"},
        {2, R"({"tp": 2, "sp": true, "ep": 2, "dispatch": "allgather"})"},
        {4, R"({"dp": 4, "ep": 2, "etp": 2, "zero": 1})"}}) {
    const std::string arguments = "train --json --quiet --config " + WriteRun(layout, "", moe);
    const MpirunResult threads = RunAlone(arguments);
    const MpirunResult processes = RunRanks(ranks, arguments);
    ASSERT_EQ(threads.exit_code, 0) << threads.output;
    ASSERT_EQ(processes.exit_code, 0) << processes.output;
    EXPECT_EQ(JsonLines(processes.output).size(), 5u) << processes.output;
    EXPECT_EQ(JsonLines(processes.output), JsonLines(threads.output)) << layout;
  }
}

TEST_F(MpirunTest, LauncherFlagStartsTheRanks) {
  const std::string arguments = "train --json --quiet --config " + WriteRun(R"({"dp": 2})");
  const MpirunResult launched = RunAlone(arguments + " --launcher mpirun");
  ASSERT_EQ(launched.exit_code, 0) << launched.output;
  EXPECT_EQ(JsonLines(launched.output), JsonLines(RunAlone(arguments).output));
  const MpirunResult twice = RunRanks(2, arguments + " --launcher=mpirun");
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_EQ(twice.output,
            "trimtab: mpirun started this process already; leave out --launcher mpirun\n");
}

// Ctrl-C reaches the command alone, which has its ranks save, however long mpirun would give them.
TEST_F(MpirunTest, CommandThatStartsItsRanksSavesWhenItIsStopped) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string checkpoint = fmt::format("{}/stopped{}", folder_, signal);
    const pid_t command = StartCommand(
        fmt::format("env TRIMTAB_MPI_BACKEND='{}' tools/trimtab train --quiet --json --config {} "
                    "--steps 1000000 --launcher local --checkpoint {}",
                    std::filesystem::absolute(FindBackendFile("mpi").path).string(),
                    WriteRun(R"({"dp": 2})"), checkpoint),
        checkpoint + ".out");
    ASSERT_TRUE(WaitFor(std::chrono::seconds(60), [&] {
      return ReadWholeFile(checkpoint + ".out").find("\"step\":2,") != std::string::npos;
    })) << ReadWholeFile(checkpoint + ".out");
    kill(command, signal);
    EXPECT_EQ(WaitForEnd(command), 128 + signal) << ReadWholeFile(checkpoint + ".out");
    EXPECT_TRUE(std::filesystem::exists(checkpoint));
  }
}

TEST_F(MpirunTest, CheckpointIsThatOfThreads) {
  for (const char* layout : {R"({"tp": 2, "dp": 2, "zero": 1})", R"({"pp": 2, "dp": 2})"}) {
    const std::string train =
        "train --quiet --config " + WriteRun(layout) + " --checkpoint " + folder_;
    for (const char* name : {"/threads", "/processes"}) {
      std::filesystem::remove_all(folder_ + name);
    }
    const MpirunResult threads = RunAlone(train + "/threads");
    const MpirunResult processes = RunRanks(4, train + "/processes");
    ASSERT_EQ(threads.exit_code, 0) << threads.output;
    ASSERT_EQ(processes.exit_code, 0) << processes.output;
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/threads")) {
      const std::string name = entry.path().filename().string();
      EXPECT_EQ(ReadWholeFile(entry.path().string()), ReadWholeFile(folder_ + "/processes/" + name))
          << name;
      ++files;
    }
    EXPECT_EQ(files, 5);
    const MpirunResult resumed =
        RunRanks(4, train + "/processes --steps 7 --schedule-steps 5 --json --load " + folder_ +
                        "/processes");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(JsonLines(resumed.output).size(), 2u) << resumed.output;
  }
}

TEST_F(MpirunTest, OneRunAtATimeSavesToAFolder) {
  const std::string checkpoint = folder_ + "/checkpoint";
  const std::string train =
      "train --quiet --config " + WriteRun(R"({"dp": 2})") + " --checkpoint " + checkpoint;
  {
    const auto of_another = LockFile::Take(checkpoint + ".lock");
    const MpirunResult refused = RunRanks(2, train);
    EXPECT_EQ(refused.exit_code, 7) << refused.output;
    EXPECT_NE(refused.output.find("trimtab: " + checkpoint + ": another run saves to it"),
              std::string::npos)
        << refused.output;
  }
  const MpirunResult processes = RunRanks(2, train);
  EXPECT_EQ(processes.exit_code, 0) << processes.output;
  EXPECT_FALSE(std::filesystem::exists(checkpoint + ".lock"));
}

TEST_F(MpirunTest, ProfilesAndWritesOneResult) {
  const std::string run = WriteRun(R"({"tp": 2})");
  const MpirunResult launched =
      RunAlone("profile --quiet --json --steps 2 --launcher mpirun --config " + run);
  ASSERT_EQ(launched.exit_code, 0) << launched.output;
  const nlohmann::json json = nlohmann::json::parse(launched.output);
  EXPECT_EQ(json["run"]["layout"]["tp"], 2);
  EXPECT_GT(json["step_time_s"].get<double>(), 0);

  const std::string results = folder_ + "/results.jsonl";
  const std::string commands = folder_ + "/commands";
  std::ofstream(commands) << "visit a1\nvisit a2\n";
  const MpirunResult trial = RunRanks(
      2, "profile --quiet --steps 2 --result " + results + " --config " + run + " < " + commands);
  EXPECT_EQ(trial.exit_code, 0) << trial.output;
  ExpectOneResultEach({"a1", "a2"}, results);
}

TEST_F(MpirunTest, TrialOfASearchRunsUnderMpirun) {
  TrialRequest request = {
      .job = TrainingJob(LoadRunConfig(WriteRun(R"({"tp": 2})")),
                         {.warmup = 1, .steps = 2, .max_steps = 2}, "tp=2"),
      .attempt = "first",
      .results_path = folder_ + "/results.jsonl",
      .log_path = folder_ + "/log",
      .study = folder_ + "/study.db",
      .memory_bytes = 1,
  };
  ::setenv("TRIMTAB_MPI_BACKEND", FindBackendFile("mpi").path.c_str(), /*overwrite=*/1);
  ProcessTrialRunner runner({.program = "tools/trimtab",
                             .launcher = MakeLauncher("local", {}),
                             .parked_bytes = 2 * kProcessBytes});
  const auto run = [&] { return runner.Run(request, [] { return false; }); };
  EXPECT_EQ(run().state, TrialState::kDone) << ReadWholeFile(request.log_path);
  request.attempt = "second";
  EXPECT_EQ(run().state, TrialState::kDone) << ReadWholeFile(request.log_path);
  const std::vector<TrialResult> results = ReadResults(request.results_path);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[1].measurement->steps_measured, 2);
  EXPECT_EQ(results[1].measurement->losses.size(), 6u) << "its worker went on from the first visit";

  runner.Release(request.job.key);
  EXPECT_FALSE(AnyProcessHas(request.results_path)) << "a released worker leaves";

  // No rank outlives the mpirun that the driver kills.
  request.attempt = "too_long_under_mpirun";
  request.job = TrainingJob(LoadRunConfig(WriteRun(R"({"tp": 2})")),
                            {.steps = 1000000, .max_steps = 1000000, .max_seconds = 1e6}, "tp=2");
  request.time_limit_s = 3;
  EXPECT_EQ(run().state, TrialState::kTimedOut);
  for (int tries = 0; tries < 100 && AnyProcessHas(request.results_path); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_FALSE(AnyProcessHas(request.results_path));
}

// A rank of a training run that goes away, by a signal: the run ends, and says which.
TEST_F(MpirunTest, LostRankIsNamedAndEndsTheRun) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const std::string train =
        "train --quiet --steps 100000000 --config " + WriteRun(R"({"dp": 2})");
    MpirunResult result;
    std::thread run([&] {
      result = RunUnderMpirun(2, "tools/trimtab " + train, "TRIMTAB_HEARTBEAT_TIMEOUT_S=3");
    });
    pid_t victim = 0;
    for (int tries = 0; tries < 1000 && victim == 0; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      victim = ProcessOfRank(1, folder_);
    }
    std::this_thread::sleep_for(std::chrono::seconds(2));  // it trains by now
    EXPECT_NE(victim, 0);
    const auto begin = std::chrono::steady_clock::now();
    if (victim != 0) ::kill(victim, signal);
    run.join();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 30);
    EXPECT_NE(result.exit_code, 0);
    const std::string told =
        signal == SIGKILL ? "rank 1 has died" : "rank 1 has been silent for 3 s";
    EXPECT_NE(result.output.find(told), std::string::npos) << result.output;
    EXPECT_EQ(result.output.find(told), result.output.rfind(told)) << result.output;
    EXPECT_FALSE(AnyProcessHas(folder_)) << "a process is left";
  }
}

// A worker that waits for its next command is not held to the limit on waits.
TEST_F(MpirunTest, ParkedWorkerMayWait) {
  const std::string run = WriteRun(R"({"dp": 2})");
  const std::string commands = folder_ + "/commands";
  ASSERT_EQ(::mkfifo(commands.c_str(), 0600), 0);
  std::thread driver([&commands] {
    std::ofstream pipe(commands);
    pipe << "visit a1\n" << std::flush;
    std::this_thread::sleep_for(std::chrono::seconds(12));
    pipe << "visit a2\n" << std::flush;
  });
  const std::string results = folder_ + "/results.jsonl";
  const MpirunResult trial = RunUnderMpirun(2,
                                            "tools/trimtab profile --quiet --steps 2 --result " +
                                                results + " --config " + run + " < " + commands,
                                            "TRIMTAB_COMM_TIMEOUT_S=5");
  driver.join();
  EXPECT_EQ(trial.exit_code, 0) << trial.output;
  ExpectOneResultEach({"a1", "a2"}, results);
}

TEST_F(MpirunTest, OtherLaunchersAreRefused) {
  const std::string run = WriteRun(R"({"dp": 2})");
  ::setenv("WORLD_SIZE", "8", 1);
  ::setenv("RANK", "0", 1);
  const MpirunResult result = RunAlone("train --quiet --config " + run);
  ::unsetenv("WORLD_SIZE");
  ::unsetenv("RANK");
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.output,
            "trimtab: torchrun says that this is process 0 of 8 (WORLD_SIZE=8), but every one of "
            "them would run all ranks; expected one process, or ranks started by Open MPI's mpirun "
            "or by srun --mpi=pmix\n");
}

TEST_F(MpirunTest, WorldOfAnotherSizeIsRefused) {
  const MpirunResult result = RunRanks(3, "train --quiet --config " + WriteRun(R"({"tp": 2})"));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output,
            "trimtab: mpirun started 3 processes, but the layout tp=2,dp=1,mbs=1 has 2 ranks; "
            "expected mpirun -n 2\n");
}

TEST_F(MpirunTest, FailureOfRanksIsOneLineAndItsOwnExitCode) {
  const MpirunResult memory =
      RunRanks(2, "train --quiet --config " +
                      WriteRun(R"({"tp": 2})", R"("memory_per_rank_bytes": 50000,)"));
  EXPECT_EQ(memory.exit_code, 4);
  EXPECT_EQ(memory.output.find("trimtab: rank 0 failed: out of memory: "), 0u) << memory.output;
  EXPECT_EQ(std::count(memory.output.begin(), memory.output.end(), '\n'), 1) << memory.output;

  const MpirunResult input = RunRanks(2, "train --quiet --config /nonexistent/run.json");
  EXPECT_EQ(input.exit_code, 3);
  EXPECT_EQ(std::count(input.output.begin(), input.output.end(), '\n'), 1) << input.output;
}

TEST_F(MpirunTest, MissingBackendIsNamed) {
  const MpirunResult result = RunUnderMpirun(
      2, "env TRIMTAB_MPI_BACKEND=/nonexistent.so tools/trimtab train --quiet --config " +
             WriteRun(R"({"tp": 2})"));
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(result.output, "trimtab: no MPI backend at /nonexistent.so\n");
}

}  // namespace
}  // namespace trimtab
