#include "profiler/trial.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/base/error.h"
#include "profiler/launch/child_process.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

constexpr char kStart[] =
    "read visit id\n"
    "printf '{\"schema_version\":1,\"attempt\":\"%s\",\"state\":\"started\"}\\n' \"$id\" >> "
    "\"$4\"\n";

/// Trials whose child is a shell script: $2 is the config, $4 the results file; "visit ID" comes on
/// stdin.
class TrialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  TrialRequest Request() const {
    TrialRequest request;
    RunConfig run;
    run.global_batch = 17;
    request.job = TrainingJob(run, {}, "layout");
    request.attempt = "study-1";
    request.results_path = folder_ + "/results";
    request.log_path = folder_ + "/log";
    request.time_limit_s = 20;
    return request;
  }

  static ProcessTrialRunner Runner(const std::string& script, int64_t parked_bytes = 0) {
    return ProcessTrialRunner({.program = "/bin/sh",
                               .arguments = {script},
                               .parked_bytes = parked_bytes,
                               .first_retry_s = 0.01});
  }

  /// Of a worker whose ranks have met.
  TrialOutcome Run(const std::string& script, double time_limit_s = 20) {
    return RunAll(kStart + script, time_limit_s);
  }
  /// Of a worker that does nothing but what the script says.
  TrialOutcome RunAll(const std::string& script, double time_limit_s = 20) {
    const std::string path = folder_ + "/script.sh";
    std::ofstream(path) << script;
    TrialRequest request = Request();
    request.time_limit_s = time_limit_s;
    return Runner(path).Run(request, [this] { return cancelled_; });
  }

  /// That the process whose id is in the file ends.
  static void ExpectGone(const std::string& pid_path) {
    pid_t process = 0;
    std::ifstream(pid_path) >> process;
    ASSERT_GT(process, 0);
    for (int i = 0; i < 100 && kill(process, 0) == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    // An orphan that nobody reaps stays as a zombie, which no longer has a command line.
    std::string command;
    std::ifstream(fmt::format("/proc/{}/cmdline", process)) >> command;
    EXPECT_EQ(command, "");
  }

  std::string folder_;
  bool cancelled_ = false;
};

constexpr char kWriteOutOfMemory[] =
    "printf '{\"schema_version\":1,\"attempt\":\"%s\",\"state\":\"out_of_memory\","
    "\"message\":\"needs 9 GiB\"}\\n' \"$id\" >> \"$4\"\n";

TEST_F(TrialTest, TheLineInTheResultsFileDecides) {
  const TrialOutcome outcome = Run(std::string(kWriteOutOfMemory) + "exit 4\n");
  EXPECT_EQ(outcome.state, TrialState::kOutOfMemory);
  EXPECT_EQ(outcome.message, "needs 9 GiB");
  EXPECT_EQ(outcome.exit_code, 4);
}

TEST_F(TrialTest, AFinishedLineOutlivesACrash) {
  const TrialOutcome outcome = Run(std::string(kWriteOutOfMemory) + "kill -SEGV $$\n");
  EXPECT_EQ(outcome.state, TrialState::kOutOfMemory);
  EXPECT_EQ(outcome.exit_code, 128 + SIGSEGV);
}

TEST_F(TrialTest, ACrashIsNamedAndQuotesTheLastLine) {
  const TrialOutcome outcome = Run("echo first >&2; echo second >&2; echo >&2; kill -SEGV $$\n");
  EXPECT_EQ(outcome.state, TrialState::kCrashed);
  EXPECT_EQ(outcome.message, "ended by signal 11 (Segmentation fault); it last said: second");
}

TEST_F(TrialTest, AFailureHasItsExitCode) {
  const TrialOutcome outcome = Run("echo bad config >&2; exit 3\n");
  EXPECT_EQ(outcome.state, TrialState::kFailed);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.message, "exit code 3 without a result; it last said: bad config");
}

TEST_F(TrialTest, WhatDoesNotBeginIsNoFaultOfItsCandidate) {
  for (const char* end : {"exit 1", "kill -SEGV $$", "exit 127", "kill -KILL $$"}) {
    SetUp();
    const TrialOutcome outcome =
        RunAll(std::string("echo x >> \"$2.tries\"\n"
                           "echo \"srun: unrecognized option '--x'\" >&2\n"
                           "echo 'Try \"srun --help\" for more information' >&2\n") +
               end);
    EXPECT_EQ(outcome.state, TrialState::kInterrupted) << end;
    EXPECT_EQ(outcome.message, "srun: unrecognized option '--x'");
    EXPECT_GT(std::filesystem::file_size(folder_ + "/results.run.json.tries"), 2u)
        << "it is tried again";
  }
}

TEST_F(TrialTest, ALauncherThatRecoversStartsTheTrial) {
  const TrialOutcome outcome = RunAll(std::string("echo x >> \"$2.tries\"\n"
                                                  "[ $(wc -l < \"$2.tries\") -gt 2 ] || exit 1\n") +
                                      kStart + kWriteOutOfMemory);
  EXPECT_EQ(outcome.state, TrialState::kOutOfMemory) << outcome.message;
}

TEST_F(TrialTest, AWorkerThatFindsNoDeviceNeverBegan) {
  const TrialOutcome outcome = RunAll(
      "read visit id\n"
      "printf '{\"schema_version\":1,\"attempt\":\"%s\",\"state\":\"interrupted\","
      "\"message\":\"no GPU\"}\\n' \"$id\" >> \"$4\"\n"
      "exit 1\n");
  EXPECT_EQ(outcome.state, TrialState::kInterrupted);
  EXPECT_EQ(outcome.message, "no GPU");
}

TEST_F(TrialTest, ATrialThatHangsBeforeItBeginsIsNoFaultOfItsCandidate) {
  EXPECT_EQ(RunAll("sleep 30\n", 1).state, TrialState::kInterrupted);
}

TEST_F(TrialTest, OnlyThisTrialsOutputIsQuoted) {
  std::ofstream(folder_ + "/log") << "the output of an earlier trial\n";
  EXPECT_EQ(Run("exit 3\n").message, "exit code 3 without a result");
}

TEST_F(TrialTest, SuccessWithoutAResultIsAFailure) {
  EXPECT_EQ(Run("exit 0\n").state, TrialState::kFailed);
}

TEST_F(TrialTest, ATrialThatTakesTooLongIsKilledWithItsChildren) {
  const TrialOutcome outcome = Run("sleep 30 & echo $! > \"$2.pid\"; wait\n", 1);
  EXPECT_EQ(outcome.state, TrialState::kTimedOut);
  EXPECT_LT(outcome.seconds, 10);
  EXPECT_NE(outcome.message.find("time limit of 1 s"), std::string::npos) << outcome.message;
  ExpectGone(folder_ + "/results.run.json.pid");
}

TEST_F(TrialTest, ARankThatIsStoppedIsTimedOutAndSaidToBeStopped) {
  const TrialOutcome outcome = Run("echo warming up >&2; kill -STOP $$\n", 1);
  EXPECT_EQ(outcome.state, TrialState::kTimedOut);
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
  EXPECT_LT(outcome.seconds, 10);
  EXPECT_NE(outcome.message.find("it last said: warming up; "), std::string::npos)
      << outcome.message;
  EXPECT_NE(outcome.message.find("sh) is stopped"), std::string::npos) << outcome.message;
}

TEST_F(TrialTest, ARankThatHangsIsTimedOutWithWhereItWaits) {
  const TrialOutcome outcome = Run("sleep 30; echo never\n", 1);
  EXPECT_EQ(outcome.state, TrialState::kTimedOut);
  EXPECT_NE(outcome.message.find("(sleep) waits"), std::string::npos) << outcome.message;
  EXPECT_EQ(outcome.message.find("sh)"), std::string::npos) << outcome.message;
}

TEST_F(TrialTest, AKillThatNobodyExplainsIsACrash) {
  const TrialOutcome outcome = Run("sleep 30 & echo $! > \"$2.pid\"; kill -KILL $$\n");
  EXPECT_EQ(outcome.state, TrialState::kCrashed);
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
  EXPECT_EQ(outcome.message, "ended by signal 9 (Killed)");
  ExpectGone(folder_ + "/results.run.json.pid");
}

/// A group of processes that may use little memory together; the kernel ends who uses more.
class LittleMemory {
 public:
  LittleMemory() : path_(fmt::format("{}/trimtab-test-{}", Root(), getpid())) {
    std::error_code error;
    std::filesystem::create_directory(path_, error);
    for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
      if (!std::filesystem::exists(path_ + "/" + name)) continue;
      std::ofstream file(path_ + "/" + name);
      file << (32 << 20) << std::flush;
      limited_ = file.good();
    }
  }
  ~LittleMemory() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  LittleMemory(const LittleMemory&) = delete;
  LittleMemory& operator=(const LittleMemory&) = delete;

  bool limited() const { return limited_; }
  const std::string& path() const { return path_; }

 private:
  static std::string Root() {
    const std::string old = "/sys/fs/cgroup/memory";
    return std::filesystem::exists(old) ? old : "/sys/fs/cgroup";
  }
  std::string path_;
  bool limited_ = false;
};

TEST_F(TrialTest, WhatTheKernelEndedForMemoryRanOut) {
  const LittleMemory group;
  if (!group.limited()) GTEST_SKIP() << "no memory limit can be set at " << group.path();
  const TrialOutcome outcome =
      Run("echo $$ > " + group.path() + "/cgroup.procs; exec tail /dev/zero\n", 60);
  EXPECT_EQ(outcome.state, TrialState::kOutOfMemory) << outcome.message;
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
  EXPECT_NE(outcome.message.find("for want of memory"), std::string::npos) << outcome.message;
}

// The worker would write to a file that nobody reads.
TEST_F(TrialTest, AResultsFileThatIsDeletedEndsTheTrial) {
  std::ofstream(folder_ + "/results") << "";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(
      MessageOf<StorageError>([&] { Run("echo $$ > \"$2.pid\"; rm \"$4\"; exec sleep 30\n"); }),
      folder_ + "/results: was deleted while a trial was running");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  ExpectGone(folder_ + "/results.run.json.pid");
}

TEST_F(TrialTest, CancellingKillsTheTrial) {
  cancelled_ = true;
  const TrialOutcome outcome = Run("sleep 30\n");
  EXPECT_EQ(outcome.state, TrialState::kCancelled);
  EXPECT_LT(outcome.seconds, 10);
}

TEST_F(TrialTest, AFullDiskInTheChildIsAStorageError) {
  EXPECT_THROW(Run("echo results: cannot append >&2; exit 7\n"), StorageError);
}

TEST_F(TrialTest, AProgramThatIsNotThereIsAnEnvironmentError) {
  EXPECT_THROW(
      ProcessTrialRunner({.program = "/nonexistent/trimtab"}).Run(Request(), [] { return false; }),
      EnvironmentError);
}

TEST_F(TrialTest, TheChildGetsTheRunAndTheOptions) {
  Run("cp \"$2\" \"$2.copy\"; echo \"$@\" > \"$2.arguments\"; exit 1\n");
  std::string config;
  std::getline(std::ifstream(folder_ + "/results.run.json.copy"), config, '\0');
  EXPECT_NE(config.find("\"global_batch\": 17"), std::string::npos) << config;
  std::string arguments;
  std::getline(std::ifstream(folder_ + "/results.run.json.arguments"), arguments);
  EXPECT_NE(arguments.find("--steps 10 --warmup 2 "), std::string::npos) << arguments;
}

/// A worker that measures whenever it is told, and notes each start in $2.starts.
constexpr char kPatientWorker[] =
    "echo start >> \"$2.starts\"\n"
    "while read visit id; do\n"
    "  cat \"$2.line\" | sed \"s/ID/$id/\" >> \"$4\"\n"
    "done\n";

class ParkingTest : public TrialTest {
 protected:
  void SetUp() override {
    TrialTest::SetUp();
    std::ofstream(folder_ + "/worker.sh") << kPatientWorker;
    TrialResult result{.attempt = "ID", .state = TrialState::kDone};
    result.measurement.emplace().step_time_s = 1;
    ResultsFile(folder_ + "/results.run.json.line").Append(result);
  }

  TrialState Visit(ProcessTrialRunner& runner, const std::string& key, const std::string& id) {
    TrialRequest request = Request();
    request.job.key = key;
    request.attempt = id;
    request.memory_bytes = 100;
    return runner.Run(request, nullptr).state;
  }

  size_t Starts() const {
    std::ifstream file(folder_ + "/results.run.json.starts");
    size_t starts = 0;
    for (std::string line; std::getline(file, line);) ++starts;
    return starts;
  }
};

TEST_F(ParkingTest, AWorkerServesSeveralVisitsOfItsCandidate) {
  ProcessTrialRunner runner =
      Runner(folder_ + "/worker.sh", /*parked_bytes=*/2 * (100 + kProcessBytes));
  EXPECT_EQ(Visit(runner, "a", "1"), TrialState::kDone);
  EXPECT_EQ(Visit(runner, "b", "2"), TrialState::kDone);
  EXPECT_EQ(Visit(runner, "a", "3"), TrialState::kDone);
  EXPECT_EQ(Visit(runner, "b", "4"), TrialState::kDone);
  EXPECT_EQ(Starts(), 2u);
  EXPECT_EQ(ReadResults(folder_ + "/results").size(), 4u);
}

TEST_F(ParkingTest, WorkersThatDoNotFitStartAgain) {
  ProcessTrialRunner runner =
      Runner(folder_ + "/worker.sh", /*parked_bytes=*/2 * (100 + kProcessBytes) - 1);
  for (const char* id : {"1", "2"}) EXPECT_EQ(Visit(runner, "a", id), TrialState::kDone);
  EXPECT_EQ(Starts(), 1u);
  EXPECT_EQ(Visit(runner, "b", "3"), TrialState::kDone);  // no room for both: "a" leaves
  EXPECT_EQ(Visit(runner, "a", "4"), TrialState::kDone);
  EXPECT_EQ(Starts(), 3u);
}

TEST_F(ParkingTest, AReleasedWorkerLeaves) {
  ProcessTrialRunner runner = Runner(folder_ + "/worker.sh", /*parked_bytes=*/8 * kProcessBytes);
  EXPECT_EQ(Visit(runner, "a", "1"), TrialState::kDone);
  runner.Release("a");
  EXPECT_EQ(Visit(runner, "a", "2"), TrialState::kDone);
  EXPECT_EQ(Starts(), 2u);
}

TEST_F(ParkingTest, AWorkerThatDiedWhileParkedIsReplaced) {
  std::ofstream(folder_ + "/worker.sh") << "echo start >> \"$2.starts\"\nread visit id\n"
                                           "cat \"$2.line\" | sed \"s/ID/$id/\" >> \"$4\"\n";
  ProcessTrialRunner runner = Runner(folder_ + "/worker.sh", /*parked_bytes=*/8 * kProcessBytes);
  EXPECT_EQ(Visit(runner, "a", "1"), TrialState::kDone);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(Visit(runner, "a", "2"), TrialState::kDone);
  EXPECT_EQ(Starts(), 2u);
}

TEST_F(TrialTest, AKilledDriverTakesItsTrialWithIt) {
  const std::string pid_path = folder_ + "/pid";
  const std::string script = folder_ + "/script.sh";
  std::ofstream(script) << "echo $$ > " << pid_path << ".part; mv " << pid_path << ".part "
                        << pid_path << "; sleep 30; sleep 30\n";
  const pid_t driver = fork();
  if (driver == 0) {
    ChildProcess child("/bin/sh", {script}, folder_ + "/log");
    child.Wait();
    _exit(0);
  }
  pid_t trial = 0;
  for (int i = 0; i < 500 && trial == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::ifstream(pid_path) >> trial;
  }
  ASSERT_GT(trial, 0);
  kill(driver, SIGKILL);
  waitpid(driver, nullptr, 0);
  std::string command = "?";
  for (int i = 0; i < 500 && !command.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    command.clear();
    std::ifstream(fmt::format("/proc/{}/cmdline", trial)) >> command;
  }
  EXPECT_EQ(command, "") << "the trial outlived its driver";
}

}  // namespace
}  // namespace trimtab
