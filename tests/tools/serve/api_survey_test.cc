// docs/serving-api.md says what the command that serves takes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/processes.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

constexpr char kRun[] = R"({
  "model": {"name": "tiny", "vocab_size": 257, "hidden_size": 16, "num_layers": 1, "num_heads": 2,
            "num_kv_heads": 1, "ffn_hidden_size": 32, "max_sequence_length": 512},
  "global_batch": 4, "sequence_length": 16, "steps": 2})";

TEST(ApiSurvey, TheDocsSayWhatTheServerDoes) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/survey";
  std::filesystem::create_directories(folder);
  WriteBytes(folder + "/run.json", kRun);
  const Outcome trained = Shell(fmt::format(
      "tools/trimtab train --quiet --config {0}/run.json --checkpoint {0}/model", folder));
  ASSERT_EQ(trained.status, 0) << trained.output;
  const pid_t server = StartCommand(
      fmt::format("tools/trimtab serve --quiet --load {0}/model --tokenizer byte --port 0 "
                  "--chat-template plain --cache-tokens 4096",
                  folder),
      folder + "/url");
  const auto url = [&] { return ReadWholeFile(folder + "/url"); };
  ASSERT_TRUE(WaitFor(std::chrono::seconds(60), [&] { return url().ends_with("\n"); })) << url();
  const std::string address = url().substr(0, url().find('\n'));
  const Outcome survey = Shell(fmt::format(
      "{{ python3 tests/tools/serve/api_survey.py {} >{}/serving-api.md; }}", address, folder));
  ::kill(server, SIGTERM);
  EXPECT_EQ(WaitForEnd(server), 128 + SIGTERM);
  ASSERT_EQ(survey.status, 0) << survey.output;
  std::fputs(survey.output.c_str(), stdout);
  const Outcome difference =
      Shell(fmt::format("diff docs/serving-api.md {}/serving-api.md", folder));
  EXPECT_EQ(difference.status, 0) << difference.output
                                  << "\nto accept: api_survey.py URL >docs/serving-api.md";
}

}  // namespace
}  // namespace trimtab
