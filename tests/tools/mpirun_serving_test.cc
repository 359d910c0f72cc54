// Commands that serve with ranks that are processes: the text of threads, replicas, and what
// happens when one goes away.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/families/load_config.h"
#include "engine/infer/serving_json.h"
#include "tests/tools/mpirun_fixture.h"
#include "tests/tools/processes.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

class MpirunServingTest : public MpirunFixture {
 protected:
  void SetUp() override {
    MpirunFixture::SetUp();
    if (IsSkipped()) return;
    load_ = " --tokenizer byte --load " + folder_ + "/c";
    const MpirunResult trained =
        RunAlone("train --quiet --config " + WriteRun("{}") + " --checkpoint " + folder_ + "/c");
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
  }

  std::string Ask() const {
    return "generate --quiet --json --prompt ab --prompt c --prompt def --max-tokens 9" + load_;
  }

  /// Whether no process of this test is left, soon after its mpirun.
  bool AllEnd() const {
    return WaitFor(std::chrono::seconds(20), [this] { return !AnyProcessHas(folder_); });
  }

  std::string load_;
};

// The first process has the prompts and prints the text; the others have their part of the model,
// or are replicas of it.
TEST_F(MpirunServingTest, TheTextIsThatOfThreads) {
  const MpirunResult alone = RunAlone(Ask());
  ASSERT_EQ(JsonLines(alone.output).size(), 3u) << alone.output;
  for (const auto& [ranks, layout] : {std::pair{2, "tp=2"},
                                      {2, "pp=2"},
                                      {4, "tp=2,sp=1,pp=2"},
                                      {2, "dp=2"},
                                      {3, "dp=3"},
                                      {4, "tp=2,dp=2"},
                                      {4, "pp=2,dp=2"},
                                      {3, "dp=3 --prefill 2"},
                                      {4, "tp=2,dp=2 --prefill 1"}}) {
    const std::string arguments = Ask() + " --layout " + layout;
    const MpirunResult threads = RunAlone(arguments);
    const MpirunResult processes = RunRanks(ranks, arguments);
    ASSERT_EQ(threads.exit_code, 0) << threads.output;
    ASSERT_EQ(processes.exit_code, 0) << processes.output;
    EXPECT_EQ(JsonLines(processes.output), JsonLines(threads.output)) << layout << "\n"
                                                                      << processes.output;
    EXPECT_EQ(JsonLines(processes.output), JsonLines(alone.output)) << layout;
  }
}

// The first process of each replica has the model that proposes.
TEST_F(MpirunServingTest, ADraftModelChangesNothing) {
  const MpirunResult alone = RunAlone(Ask());
  for (const char* layout : {"tp=2", "dp=2"}) {
    const MpirunResult drafted =
        RunRanks(2, Ask() + " --layout " + layout + " --draft " + folder_ + "/c --draft-tokens 3");
    ASSERT_EQ(drafted.exit_code, 0) << drafted.output;
    EXPECT_EQ(JsonLines(drafted.output), JsonLines(alone.output)) << layout;
  }
}

// The first process has the terminal; the others end with it.
TEST_F(MpirunServingTest, ChatsOnPipes) {
  const std::string checkpoint = folder_ + "/long";
  const MpirunResult trained =
      RunAlone("train --quiet --config " + WriteRun("{}", "", R"(, "position": "alibi")") +
               " --checkpoint " + checkpoint);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string talk = folder_ + "/talk";
  std::ofstream(talk) << "Hello\nAnd you?\n/reset\nHello\n";
  const std::string chat =
      "chat --quiet --tokenizer byte --chat-template plain --system 'Be kind.' --max-tokens 8 "
      "--max-length 256 --load " +
      checkpoint + " <" + talk;
  const MpirunResult alone = RunAlone(chat);
  ASSERT_EQ(alone.exit_code, 0) << alone.output;
  EXPECT_GE(std::ranges::count(alone.output, '\n'), 3) << alone.output;
  for (const auto& [ranks, layout] : {std::pair{2, "tp=2"}, {2, "dp=2"}, {4, "tp=2,dp=2"}}) {
    const MpirunResult processes = RunRanks(ranks, chat + " --layout " + layout);
    EXPECT_EQ(processes.exit_code, 0) << layout;
    EXPECT_EQ(processes.output, alone.output) << layout;
    EXPECT_TRUE(AllEnd()) << "a process is left";
  }
}

TEST_F(MpirunServingTest, ALoadIsMeasured) {
  for (const auto& [ranks, layout] :
       {std::pair{2, "tp=2"}, {2, "dp=2"}, {4, "tp=2,dp=2"}, {2, "dp=2 --prefill 1"}}) {
    const MpirunResult measured = RunRanks(
        ranks, "bench --quiet --json --workload 4/4 --requests 20 --concurrency 6 --layout " +
                   std::string(layout) + load_);
    ASSERT_EQ(measured.exit_code, 0) << measured.output;
    const size_t begin = measured.output.find('{');
    const size_t end = measured.output.rfind('}');
    ASSERT_LT(begin, end) << measured.output;
    const auto report = nlohmann::json::parse(measured.output.substr(begin, end + 1 - begin));
    EXPECT_EQ(report.at("requests"), 20) << measured.output;
    EXPECT_EQ(report.at("failed"), 0) << measured.output;
  }
}

TEST_F(MpirunServingTest, AReportOfReplicasIsServed) {
  ServingConfig config;
  config.model = LoadRunConfig(folder_ + "/run.json").model;
  config.layout = ParseLayout("tp=2,dp=2", 0);
  const std::string report = folder_ + "/report.json";
  std::ofstream(report) << nlohmann::json{{"recommended", {{"serving", ToJson(config)}}}}.dump();
  const MpirunResult alone = RunAlone(Ask());
  const MpirunResult processes = RunRanks(4, Ask() + " --config " + report);
  ASSERT_EQ(processes.exit_code, 0) << processes.output;
  EXPECT_EQ(JsonLines(processes.output), JsonLines(alone.output)) << processes.output;
}

TEST_F(MpirunServingTest, WhatCannotBeIsRefused) {
  const MpirunResult size = RunRanks(3, Ask() + " --layout tp=2,dp=2");
  EXPECT_EQ(size.exit_code, 2);
  EXPECT_EQ(size.output,
            "trimtab: mpirun started 3 processes, but the layout tp=2,dp=2,mbs=1 has 4 ranks; "
            "expected mpirun -n 4\n");
  const MpirunResult memory = RunRanks(2, Ask() + " --layout dp=2 --memory-per-rank 1000");
  EXPECT_EQ(memory.exit_code, 4);
  EXPECT_EQ(memory.output.find("trimtab: rank 0 failed: out of memory: "), 0u) << memory.output;
}

/// `trimtab serve` of two replicas of two ranks, which are processes.
class ReplicaServer {
 public:
  ReplicaServer(const std::string& load, const std::string& folder)
      : output_(folder + "/server"),
        pid_(StartCommand(
            MpirunLine(4, "tools/trimtab serve --quiet --port 0 --layout tp=2,dp=2" + load,
                       "TRIMTAB_HEARTBEAT_TIMEOUT_S=3"),
            output_)) {
    EXPECT_TRUE(WaitFor(std::chrono::seconds(60), [this] {
      return output().ends_with("\n") && output().find("http://") != std::string::npos;
    })) << output();
    const std::string said = output();
    const size_t begin = said.find("http://");
    if (begin != std::string::npos) url_ = said.substr(begin, said.find('\n', begin) - begin);
  }
  ~ReplicaServer() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      WaitForEnd(pid_);
    }
  }
  ReplicaServer(const ReplicaServer&) = delete;
  ReplicaServer& operator=(const ReplicaServer&) = delete;

  std::string output() const { return ReadWholeFile(output_); }
  pid_t pid() const { return pid_; }
  /// A line of the shell that asks for a completion.
  std::string Asks(const std::string& prompt) const {
    return fmt::format(
        "curl -sSf --max-time 60 {}/v1/completions -d '{{\"model\": \"tiny\", \"prompt\": "
        "\"{}\", \"max_tokens\": 8, \"temperature\": 0}}'",
        url_, prompt);
  }
  int WaitForIt() {
    ended_ = true;
    return WaitForEnd(pid_);
  }

 private:
  std::string output_;
  pid_t pid_;
  std::string url_;
  bool ended_ = false;
};

TEST_F(MpirunServingTest, AServerOfReplicasAnswersAndDrains) {
  ReplicaServer server(load_, folder_);
  std::string script;
  for (int i = 0; i < 12; ++i) {
    script +=
        fmt::format("{} -o {}/answer{} &\n", server.Asks(i % 2 == 0 ? "ab" : "c"), folder_, i);
  }
  EXPECT_EQ(Shell(script + "wait").output, "");
  std::vector<std::string> texts;
  for (int i = 0; i < 12; ++i) {
    const auto answer =
        nlohmann::json::parse(ReadWholeFile(fmt::format("{}/answer{}", folder_, i)));
    EXPECT_EQ(answer["usage"]["completion_tokens"], 8);
    texts.push_back(answer["choices"][0]["text"]);
    EXPECT_EQ(texts.back(), texts[static_cast<size_t>(i % 2)]) << i;
  }
  ::kill(server.pid(), SIGTERM);
  server.WaitForIt();
  EXPECT_TRUE(AllEnd()) << "a process is left";
  EXPECT_EQ(server.output().find("engine failed"), std::string::npos) << server.output();
}

// Of the second replica: its first rank, and one that follows it; idle, and at work.
TEST_F(MpirunServingTest, ALostRankEndsAServerAndIsNamed) {
  for (const int rank : {2, 3}) {
    for (const bool busy : {false, true}) {
      std::filesystem::remove(folder_ + "/server");
      ReplicaServer server(load_, folder_);
      std::optional<pid_t> clients;
      if (busy) {
        const std::string ask = "while " + server.Asks("ab") + "; do :; done";
        std::ofstream(folder_ + "/clients.sh") << ask << " &\n"
                                               << ask << " &\n"
                                               << ask << "\nwait\n";
        clients = StartCommand("sh " + folder_ + "/clients.sh", folder_ + "/clients");
        EXPECT_TRUE(WaitFor(std::chrono::seconds(60),
                            [&] { return ReadWholeFile(folder_ + "/clients").size() > 10000; }));
      }
      const auto begin = std::chrono::steady_clock::now();
      const pid_t victim = ProcessOfRank(rank, folder_);
      ASSERT_NE(victim, 0);
      ::kill(victim, SIGKILL);
      EXPECT_NE(server.WaitForIt(), 0);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      EXPECT_LT(took.count(), 30);
      EXPECT_NE(server.output().find(fmt::format("rank {} has died", rank)), std::string::npos)
          << server.output();
      if (clients) WaitForEnd(*clients);
      EXPECT_TRUE(AllEnd()) << "a process is left";
    }
  }
}

// Requests that are not due yet are given up.
TEST_F(MpirunServingTest, ALostRankEndsALoadAndIsNamed) {
  for (const auto& [signal, told] :
       {std::pair{SIGKILL, "rank 2 has died"}, {SIGSTOP, "rank 2 has been silent for 3 s"}}) {
    const pid_t bench = StartCommand(
        MpirunLine(4,
                   "tools/trimtab bench --quiet --layout tp=2,dp=2 --workload 4/8 --requests "
                   "100000 --rate 50" +
                       load_,
                   "TRIMTAB_HEARTBEAT_TIMEOUT_S=3"),
        folder_ + "/bench");
    EXPECT_TRUE(
        WaitFor(std::chrono::seconds(60), [this] { return ProcessOfRank(2, folder_) != 0; }));
    std::this_thread::sleep_for(std::chrono::seconds(2));  // it is at work by now
    const pid_t victim = ProcessOfRank(2, folder_);
    ASSERT_NE(victim, 0);
    const auto begin = std::chrono::steady_clock::now();
    ::kill(victim, signal);
    EXPECT_NE(WaitForEnd(bench), 0);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 30);
    const std::string output = ReadWholeFile(folder_ + "/bench");
    EXPECT_NE(output.find(told), std::string::npos) << output;
    EXPECT_TRUE(AllEnd()) << "a process is left";
  }
}

}  // namespace
}  // namespace trimtab
