// `trimtab export --format megatron`, and what `export` refuses before it looks at a checkpoint.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/tools/run_cli.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

constexpr char kRun[] = "testdata/configs/run.json";

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ExportMegatron, WritesTheOptionsOfARun) {
  const std::string out = testing::TempDir() + "/megatron.args";
  const CliResult result =
      RunCli({"export", "--format", "megatron", "--config", kRun, "--out", out, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string text = Read(out);
  EXPECT_NE(text.find("--num-layers "), std::string::npos);
  // What is printed is what was written.
  std::string words;
  const nlohmann::json said = nlohmann::json::parse(result.out);
  for (const auto& word : said.at("options")) {
    words += word.get<std::string>() + " ";
  }
  std::istringstream written(text);
  std::string all;
  for (std::string word; written >> word;) all += word + " ";
  EXPECT_EQ(words, all);
}

// The printed command hands every word over as it is, those with brackets and stars too.
TEST(ExportMegatron, SaysHowToUseTheFile) {
  const std::string folder = testing::TempDir();
  const std::string config = folder + "/experts.json";
  std::ofstream(config) << R"({"model": "mixtral-8x7b", "global_batch": 8,
      "sequence_length": 4096, "device": "cuda",
      "layout": {"ep": 8, "dp": 8, "precision": "bf16"}})";
  const std::string out = folder + "/experts.args";
  const std::vector<std::string> arguments = {"export", "--format", "megatron", "--config",
                                              config,   "--out",    out};
  const CliResult result = RunCli(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("Next: xargs -a " + out + " torchrun ... pretrain_gpt.py "),
            std::string::npos)
      << result.out;
  std::string words;
  const nlohmann::json printed = JsonOf(arguments);
  for (const auto& word : printed.at("options")) words += word.get<std::string>() + "\n";
  EXPECT_NE(words.find("\n[1]*32\n"), std::string::npos) << words;
  EXPECT_EQ(Shell("xargs -a " + out + " printf '%s\\n'").output, words);
}

TEST(ExportMegatron, RefusesWithOneLine) {
  const auto refuses = [](const std::vector<std::string>& arguments, int code,
                          const std::string& why) {
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.exit_code, code);
    EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  };
  const std::string out = testing::TempDir() + "/refused.args";
  refuses({"export", "--format", "megatron", "--out", out}, 2,
          "--format megatron: --config is required");
  refuses({"export", "--format", "megatron", "--config", kRun, "--load", "c", "--out", out}, 2,
          "--format megatron: --load is not for this format");
  refuses({"export", "--config", kRun, "--load", "c", "--out", out}, 2,
          "--format hf: --config is not for this format");
  refuses({"export", "--format", "megatron", "--config", "nothing.json", "--out", out}, 3,
          "nothing.json");
  refuses({"export", "--format", "megatron", "--config", kRun, "--out", "/nowhere/args"}, 7,
          "/nowhere/args");
  EXPECT_EQ(Read(out), "");
}

}  // namespace
}  // namespace trimtab
