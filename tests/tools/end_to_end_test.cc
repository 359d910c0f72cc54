// The main job with the real program: data, search with trials in child processes, report, training
// with the winner; and what Ctrl-C does.

#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/run_cli.h"

namespace trimtab {
namespace {

using nlohmann::json;

/// The program, started with stdout and stderr in files.
class Program {
 public:
  Program(const std::string& folder, const std::vector<std::string>& arguments)
      : out_(folder + "/stdout"), err_(folder + "/stderr") {
    pid_ = ::fork();
    if (pid_ != 0) return;
    std::vector<char*> argv = {const_cast<char*>("tools/trimtab")};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.data()));
    argv.push_back(nullptr);
    if (std::freopen(out_.c_str(), "w", stdout) == nullptr) ::_exit(120);
    if (std::freopen(err_.c_str(), "w", stderr) == nullptr) ::_exit(121);
    ::execv(argv[0], argv.data());
    ::_exit(122);
  }

  void Signal(int number) const { ::kill(pid_, number); }
  /// Waits until stdout holds `lines` lines.
  void WaitForLines(int64_t lines) const {
    while (true) {
      const std::string out = ReadBytes(out_);
      if (std::count(out.begin(), out.end(), '\n') >= lines) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  CliResult Wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), ReadBytes(out_),
            ReadBytes(err_)};
  }

 private:
  std::string out_;
  std::string err_;
  pid_t pid_ = -1;
};

class EndToEnd : public testing::Test {
 protected:
  CliResult Run(const std::vector<std::string>& arguments) {
    return Program(folder_, arguments).Wait();
  }

  std::string folder_ = ScratchFolder();
};

TEST_F(EndToEnd, SearchProvesRecommendsAndTrains) {
  MakeDataset(folder_ + "/data");
  const std::vector<std::string> search = {"search",
                                           "--model",
                                           "gpt2-tiny",
                                           "--cluster",
                                           "local",
                                           "--profile",
                                           "generic",
                                           "--gbs",
                                           "4",
                                           "--seq",
                                           "16",
                                           "--prove",
                                           "2",
                                           "--visit-steps",
                                           "2",
                                           "--visit-seconds",
                                           "0.1",
                                           "--rounds",
                                           "2",
                                           "--data",
                                           folder_ + "/data",
                                           "--study",
                                           folder_ + "/study.db",
                                           "--resume",
                                           "--report",
                                           folder_ + "/report",
                                           "--json"};
  const CliResult first = Run(search);
  // Two rounds may not tell them apart on a busy machine, which is a result too.
  ASSERT_TRUE(first.exit_code == 0 || first.exit_code == 5) << first.err;
  const json report = json::parse(ReadBytes(folder_ + "/report/report.json"));
  EXPECT_EQ(json::parse(first.out)["recommended"], report["recommended"]);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/report/REPORT.html"));
  EXPECT_NE(first.err.find("round 1, visit 2: "), std::string::npos) << first.err;

  const CliResult again = Run(search);
  EXPECT_EQ(again.exit_code, first.exit_code) << again.err;
  EXPECT_EQ(again.err.find("visit "), std::string::npos) << again.err;

  const CliResult shown =
      Run({"report", "--study", folder_ + "/study.db", "--out", folder_ + "/again"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;

  const CliResult train =
      Run({"train", "--config", folder_ + "/report/report.json", "--data", folder_ + "/data",
           "--steps", "3", "--checkpoint", folder_ + "/checkpoint"});
  EXPECT_EQ(train.exit_code, 0) << train.err;
  EXPECT_NE(train.out.find("step     3/3"), std::string::npos) << train.out;
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/checkpoint/checkpoint.json"));
}

TEST_F(EndToEnd, CtrlCSavesAndTheRunGoesOn) {
  WriteBytes(folder_ + "/run.json", kTinyRun);
  const std::vector<std::string> train = {"train",
                                          "--config",
                                          folder_ + "/run.json",
                                          "--checkpoint",
                                          folder_ + "/checkpoint",
                                          "--steps",
                                          "1000000",
                                          "--json"};
  Program program(folder_, train);
  program.WaitForLines(3);
  program.Signal(SIGINT);
  const CliResult stopped = program.Wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_NE(stopped.err.find("continue with --load"), std::string::npos) << stopped.err;

  std::vector<std::string> more = train;
  more[6] = "2";  // fewer than are done: nothing is left to do
  more.push_back("--load");
  more.push_back(folder_ + "/checkpoint");
  const CliResult resumed = Run(more);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.out, "");
}

// The terminal goes away with its session, as when a connection breaks.
TEST_F(EndToEnd, AClosedTerminalSavesToo) {
  WriteBytes(folder_ + "/run.json", kTinyRun);
  const std::string checkpoint = folder_ + "/checkpoint";
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::execl("tools/trimtab", "tools/trimtab", "train", "--config", (folder_ + "/run.json").c_str(),
            "--checkpoint", checkpoint.c_str(), "--steps", "1000000", nullptr);
    ::_exit(122);
  }
  std::string out;
  char piece[512];
  while (out.find("step     3/") == std::string::npos) {
    const ssize_t count = ::read(terminal, piece, sizeof piece);
    ASSERT_GT(count, 0) << out;
    out.append(piece, static_cast<size_t>(count));
  }
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), 129);
  EXPECT_TRUE(std::filesystem::exists(checkpoint + "/checkpoint.json"));
}

TEST_F(EndToEnd, ABrokenPipeEndsItQuietly) {
  const std::string command = "tools/trimtab models 2>" + folder_ + "/err | true";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(ReadBytes(folder_ + "/err"), "");
}

}  // namespace
}  // namespace trimtab
