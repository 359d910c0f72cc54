#include "tests/tools/run_cli.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/engine/data/data_test_util.h"
#include "tools/cli/command.h"

namespace trimtab {

const char* const kTinyRun = R"({
  "model": {"name": "tiny", "vocab_size": 257, "hidden_size": 16, "num_layers": 1, "num_heads": 2,
            "num_kv_heads": 2, "ffn_hidden_size": 32, "max_sequence_length": 16},
  "global_batch": 4, "sequence_length": 8, "steps": 4,
  "optimizer": {"learning_rate": 0.01, "min_learning_rate": 0.001, "warmup_steps": 1}
})";

CliResult RunCli(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"trimtab"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  CliResult result;
  result.exit_code = RunCommand(static_cast<int>(argv.size()), argv.data());
  result.out = testing::internal::GetCapturedStdout();
  result.err = testing::internal::GetCapturedStderr();
  return result;
}

nlohmann::json JsonOf(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const CliResult result = RunCli(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto parsed = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(parsed.is_object()) << result.out;
  EXPECT_EQ(parsed.value("schema_version", 0), 1) << result.out;
  return parsed;
}

void MakeDataset(const std::string& prefix) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  WriteBytes(prefix + ".txt", text);
  const CliResult result = RunCli({"data", "build", "--input", prefix + ".txt", "--out", prefix});
  ASSERT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace trimtab
