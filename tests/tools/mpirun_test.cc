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
#include "profiler/trial.h"
#include "tests/engine/comm/mpirun.h"

namespace trimtab {
namespace {

constexpr char kRun[] = R"({{
  "model": {{"name": "tiny", "vocab_size": 257, "hidden_size": 16, "num_layers": 2, "num_heads": 2,
            "num_kv_heads": 2, "ffn_hidden_size": 32, "max_sequence_length": 16{}}},
  "global_batch": 4, "sequence_length": 8, "steps": 5, "layout": {}, {}
  "optimizer": {{"learning_rate": 0.01, "min_learning_rate": 0.001, "warmup_steps": 1}}
}})";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The lines of JSON that a command prints, without their speeds.
std::vector<std::string> Steps(const std::string& output) {
  std::vector<std::string> steps;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("{")) continue;
    nlohmann::json json = nlohmann::json::parse(line);
    json.erase("tokens_per_s");
    steps.push_back(json.dump());
  }
  return steps;
}

/// The process that is rank `rank` of a run with `word` in its command line; 0 if there is none.
pid_t ProcessOfRank(int rank, const std::string& word) {
  const std::string variable = fmt::format("OMPI_COMM_WORLD_RANK={}", rank) + '\0';
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string path = entry.path().string();
    if (ReadFile(path + "/cmdline").find(word) == std::string::npos) continue;
    if (ReadFile(path + "/environ").find(variable) == std::string::npos) continue;
    return std::stoi(entry.path().filename().string());
  }
  return 0;
}

class MpirunTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = WhyNoMpirun();
    if (!reason.empty()) GTEST_SKIP() << reason;
    folder_ = testing::TempDir() + "mpirun_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  /// The path of a run of `layout`, a JSON object, with `more` members, and of those of its model.
  std::string WriteRun(const std::string& layout, const std::string& more = "",
                       const std::string& more_of_model = "") {
    const std::string path = folder_ + "/run.json";
    std::ofstream(path) << fmt::format(kRun, more_of_model, layout, more);
    return path;
  }

  /// Runs the command in one process.
  static MpirunResult RunAlone(const std::string& arguments) {
    const std::string file = testing::TempDir() + "mpirun_test_alone";
    const int status =
        std::system(fmt::format("TRIMTAB_MPI_BACKEND='{}' tools/trimtab {} > {} 2>&1",
                                std::filesystem::absolute(FindBackendFile("mpi").path).string(),
                                arguments, file)
                        .c_str());
    return {WEXITSTATUS(status), ReadFile(file)};
  }

  static MpirunResult RunRanks(int ranks, const std::string& arguments) {
    return RunUnderMpirun(ranks, "tools/trimtab " + arguments);
  }

  std::string folder_;
};

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
    EXPECT_EQ(Steps(processes.output).size(), 5u) << processes.output;
    EXPECT_EQ(Steps(processes.output), Steps(threads.output)) << layout;
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
    EXPECT_EQ(Steps(processes.output).size(), 5u) << processes.output;
    EXPECT_EQ(Steps(processes.output), Steps(threads.output)) << layout;
  }
}

TEST_F(MpirunTest, LauncherFlagStartsTheRanks) {
  const std::string arguments = "train --json --quiet --config " + WriteRun(R"({"dp": 2})");
  const MpirunResult launched = RunAlone(arguments + " --launcher mpirun");
  ASSERT_EQ(launched.exit_code, 0) << launched.output;
  EXPECT_EQ(Steps(launched.output), Steps(RunAlone(arguments).output));
  const MpirunResult twice = RunRanks(2, arguments + " --launcher=mpirun");
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_EQ(twice.output,
            "trimtab: mpirun started this process already; leave out --launcher mpirun\n");
}

TEST_F(MpirunTest, CheckpointIsThatOfThreads) {
  for (const char* layout : {R"({"tp": 2, "dp": 2, "zero": 1})", R"({"pp": 2, "dp": 2})"}) {
    const std::string train =
        "train --quiet --config " + WriteRun(layout) + " --checkpoint " + folder_;
    const MpirunResult threads = RunAlone(train + "/threads");
    const MpirunResult processes = RunRanks(4, train + "/processes");
    ASSERT_EQ(threads.exit_code, 0) << threads.output;
    ASSERT_EQ(processes.exit_code, 0) << processes.output;
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/threads")) {
      const std::string name = entry.path().filename().string();
      EXPECT_EQ(ReadFile(entry.path().string()), ReadFile(folder_ + "/processes/" + name)) << name;
      ++files;
    }
    EXPECT_EQ(files, 3);
    const MpirunResult resumed =
        RunRanks(4, train + "/processes --steps 7 --json --load " + folder_ + "/processes");
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_EQ(Steps(resumed.output).size(), 2u) << resumed.output;
  }
}

// The first process has the prompts and prints the text; the others have their part of the model.
TEST_F(MpirunTest, ServesTheTextOfThreads) {
  const std::string load = " --load " + folder_ + "/c";
  const MpirunResult trained =
      RunAlone("train --quiet --config " + WriteRun("{}") + " --checkpoint " + folder_ + "/c");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string ask =
      "generate --quiet --json --tokenizer byte --prompt ab --prompt c --max-tokens 9" + load;
  for (const char* layout : {"tp=2", "pp=2", "tp=2,sp=1,pp=2"}) {
    const std::string arguments = ask + " --layout " + layout;
    const int ranks = std::string(layout) == "tp=2,sp=1,pp=2" ? 4 : 2;
    const MpirunResult threads = RunAlone(arguments);
    const MpirunResult processes = RunRanks(ranks, arguments);
    ASSERT_EQ(threads.exit_code, 0) << threads.output;
    ASSERT_EQ(processes.exit_code, 0) << processes.output;
    EXPECT_EQ(Steps(threads.output).size(), 2u) << threads.output;
    EXPECT_EQ(Steps(processes.output), Steps(threads.output)) << layout << "\n" << processes.output;
  }
  const MpirunResult measured = RunRanks(
      2, "bench --quiet --json --layout tp=2 --workload 4/4 --requests 6 --concurrency 3" + load);
  ASSERT_EQ(measured.exit_code, 0) << measured.output;
  const size_t begin = measured.output.find('{');
  const size_t end = measured.output.rfind('}');
  ASSERT_LT(begin, end) << measured.output;
  EXPECT_EQ(nlohmann::json::parse(measured.output.substr(begin, end + 1 - begin)).at("requests"), 6)
      << measured.output;
  // The first process alone has the model that proposes.
  const MpirunResult drafted =
      RunRanks(2, ask + " --layout tp=2 --draft " + folder_ + "/c --draft-tokens 3");
  ASSERT_EQ(drafted.exit_code, 0) << drafted.output;
  EXPECT_EQ(Steps(drafted.output), Steps(RunAlone(ask).output)) << drafted.output;
  const MpirunResult replicas = RunRanks(2, ask + " --layout dp=2");
  EXPECT_NE(replicas.exit_code, 0);
  EXPECT_NE(replicas.output.find("expected no dp in the layout"), std::string::npos)
      << replicas.output;
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
  const std::string written = ReadFile(results);
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 2) << written;
}

TEST_F(MpirunTest, TrialOfASearchRunsUnderMpirun) {
  TrialRequest request = {
      .run = LoadRunConfig(WriteRun(R"({"tp": 2})")),
      .key = "tp=2",
      .attempt = "first",
      .results_path = folder_ + "/results.jsonl",
      .log_path = folder_ + "/log",
      .study = folder_ + "/study.db",
      .memory_bytes = 1,
      .measure = {.warmup = 1, .steps = 2, .max_steps = 2},
  };
  ::setenv("TRIMTAB_MPI_BACKEND", FindBackendFile("mpi").path.c_str(), /*overwrite=*/1);
  ProcessTrialRunner runner(
      {.program = "tools/trimtab", .launcher = MakeLauncher("local", {}), .parked_bytes = 1});
  const auto run = [&] { return runner.Run(request, [] { return false; }); };
  EXPECT_EQ(run().state, TrialState::kDone) << ReadFile(request.log_path);
  request.attempt = "second";
  EXPECT_EQ(run().state, TrialState::kDone) << ReadFile(request.log_path);
  const std::vector<TrialResult> results = ReadResults(request.results_path);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[1].measurement->steps_measured, 2);
  EXPECT_EQ(results[1].measurement->losses.size(), 6u) << "its worker went on from the first visit";

  runner.Release(request.key);
  EXPECT_FALSE(AnyProcessHas(request.results_path)) << "a released worker leaves";

  // No rank outlives the mpirun that the driver kills.
  request.attempt = "too_long_under_mpirun";
  request.measure = {.steps = 1000000, .max_steps = 1000000, .max_seconds = 1e6};
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
  const std::string written = ReadFile(results);
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 2) << written;
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
