// A server of a tiny model, and packages of npm as its clients.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/npm.h"
#include "tests/tools/processes.h"
#include "tests/tools/shell.h"

namespace trimtab {

/// Shares one server among all scenarios, each of which leaves nothing behind. Skips them where
/// npm's registry is out of reach. A fixture calls SetUpServer in its SetUpTestSuite.
class NpmClientTest : public testing::Test {
 protected:
  static void SetUpServer(const std::string& packages) {
    folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/clients";
    std::filesystem::create_directories(folder_);
    skipped_ = InstallNpmPackages(folder_, packages);
    if (!skipped_.empty()) return;
    WriteBytes(folder_ + "/run.json", kRun);
    WriteBytes(folder_ + "/key", kKey);
    const Outcome trained = Shell(fmt::format(
        "tools/trimtab train --quiet --config {0}/run.json --checkpoint {0}/model", folder_));
    ASSERT_EQ(trained.status, 0) << trained.output;
    server_ = StartCommand(
        fmt::format("tools/trimtab serve --quiet --load {0}/model --tokenizer byte --port 0 "
                    "--chat-template plain --api-key-file {0}/key --max-requests 8 "
                    "--max-body 1MiB --cache-tokens 1000000",
                    folder_),
        folder_ + "/url");
    ASSERT_TRUE(WaitFor(std::chrono::seconds(60), [] { return Url().starts_with("http://"); }))
        << Url();
  }

  static void TearDownTestSuite() {
    if (server_ == 0) return;
    ::kill(server_, SIGTERM);
    EXPECT_EQ(WaitForEnd(server_), 128 + SIGTERM) << ReadWholeFile(folder_ + "/url");
    server_ = 0;
  }

  void SetUp() override {
    if (!skipped_.empty()) GTEST_SKIP() << skipped_;
  }

  /// The server's URL, without the end of its line.
  static std::string Url() {
    const std::string said = ReadWholeFile(folder_ + "/url");
    return said.ends_with("\n") ? said.substr(0, said.find('\n')) : "";
  }

  /// Runs a scenario of a script that takes FOLDER URL KEY SCENARIO.
  static void Run(const std::string& script, const std::string& scenario) {
    const Outcome outcome = Shell(fmt::format("node tests/tools/serve/{} {} {} {} {}", script,
                                              folder_, Url(), kKey, scenario));
    EXPECT_EQ(outcome.status, 0) << outcome.output;
  }

 private:
  static constexpr char kKey[] = "sesame";
  // Answers may be longer than a client waits for: it chooses.
  static constexpr char kRun[] = R"({
  "model": {"name": "tiny", "vocab_size": 257, "hidden_size": 16, "num_layers": 1, "num_heads": 2,
            "num_kv_heads": 1, "ffn_hidden_size": 32, "max_sequence_length": 262144,
            "position": "rope"},
  "global_batch": 4, "sequence_length": 16, "steps": 2})";

  static inline std::string folder_;
  static inline std::string skipped_;
  static inline pid_t server_ = 0;
};

}  // namespace trimtab
