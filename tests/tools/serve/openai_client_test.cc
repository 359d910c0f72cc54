// A client that others wrote, npm's package openai, against the command that serves. Takes it from
// npm's registry; where that is out of reach, the test is skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/npm.h"
#include "tests/tools/processes.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

constexpr char kKey[] = "sesame";

// Answers may be so long that nobody waits for their end: that is the client's to choose.
constexpr char kRun[] = R"({
  "model": {"name": "tiny", "vocab_size": 257, "hidden_size": 16, "num_layers": 1, "num_heads": 2,
            "num_kv_heads": 1, "ffn_hidden_size": 32, "max_sequence_length": 262144,
            "position": "rope"},
  "global_batch": 4, "sequence_length": 16, "steps": 2})";

/// One server for all scenarios, each of which leaves nothing behind.
class OpenAiClient : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/openai";
    std::filesystem::create_directories(folder_);
    skipped_ = InstallNpmPackages(folder_, "openai@4.104.0");
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
  }

  void SetUp() override {
    if (!skipped_.empty()) GTEST_SKIP() << skipped_;
  }

  /// What the server said, without the end of its line.
  static std::string Url() {
    const std::string said = ReadWholeFile(folder_ + "/url");
    return said.ends_with("\n") ? said.substr(0, said.find('\n')) : "";
  }

  static void Run(const std::string& scenario) {
    const Outcome outcome = Shell(fmt::format("node tests/tools/serve/openai_client.js {} {} {} {}",
                                              folder_, Url(), kKey, scenario));
    EXPECT_EQ(outcome.status, 0) << outcome.output;
  }

  static inline std::string folder_;
  static inline std::string skipped_;
  static inline pid_t server_ = 0;
};

TEST_F(OpenAiClient, ListsTheModel) { Run("lists"); }
TEST_F(OpenAiClient, Completes) { Run("completes"); }
TEST_F(OpenAiClient, Chats) { Run("chats"); }
TEST_F(OpenAiClient, Embeds) { Run("embeds"); }
TEST_F(OpenAiClient, Echoes) { Run("echoes"); }
TEST_F(OpenAiClient, Responds) { Run("responds"); }
TEST_F(OpenAiClient, CallsTools) { Run("callsTools"); }
TEST_F(OpenAiClient, WritesJson) { Run("writesJson"); }
TEST_F(OpenAiClient, AbortsAndNothingIsLeft) { Run("aborts"); }
TEST_F(OpenAiClient, IsRefusedWithItsOwnErrors) { Run("refuses"); }
TEST_F(OpenAiClient, ComesManyTimesAtOnce) { Run("comesTogether"); }
TEST_F(OpenAiClient, NeedsItsKey) { Run("needsItsKey"); }

}  // namespace
}  // namespace trimtab
