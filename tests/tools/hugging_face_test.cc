// Real weights through the command: export, --load-hf, and what is refused.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/run_cli.h"

namespace trimtab {
namespace {

using nlohmann::json;

class HuggingFaceCommands : public testing::Test {
 protected:
  /// A trained checkpoint at `c`, and its export at `hf`.
  void SetUp() override {
    WriteBytes(folder_ + "/run.json", kTinyRun);
    MakeDataset(folder_ + "/d");
    RunWell({"train", "--config", "@run.json", "--data", "@d", "--checkpoint", "@c"});
    RunWell({"export", "--load", "@c", "--out", "@hf"});
  }

  /// Arguments "@x" are the file or folder x of the scratch folder.
  CliResult Run(std::vector<std::string> arguments) const {
    for (std::string& argument : arguments) {
      if (argument.starts_with("@")) argument = folder_ + "/" + argument.substr(1);
    }
    return RunCli(arguments);
  }
  std::string RunWell(const std::vector<std::string>& arguments) const {
    const CliResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  double FirstLoss(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"train", "--data", "@d",     "--gbs",   "4",
                                          "--seq", "8",      "--json", "--steps", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return json::parse(RunWell(arguments))["loss"].get<double>();
  }
  void ExpectRefused(std::vector<std::string> arguments, int exit_code,
                     const std::string& says) const {
    arguments.push_back("--quiet");
    const CliResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }
  void ExpectTrainingRefused(const std::string& says) const {
    ExpectRefused({"train", "--load-hf", "@hf", "--gbs", "4", "--seq", "8"}, 3, says);
  }

  std::string folder_ = ScratchFolder();
};

TEST_F(HuggingFaceCommands, TrainingBeginsWithTheExportedWeights) {
  const double loaded = FirstLoss({"--load-hf", "@hf"});
  EXPECT_LT(loaded, FirstLoss({"--model", "@hf"}) - 0.05);  // random weights
  EXPECT_NEAR(FirstLoss({"--load-hf", "@hf", "--layout", "tp=2,dp=2,zero=3"}), loaded,
              1e-5 * loaded);
  const std::string all = RunWell({"train", "--config", "@run.json", "--load-hf", "@hf"});
  EXPECT_NE(all.find("step     4/4"), std::string::npos) << all;
}

TEST_F(HuggingFaceCommands, ExportSaysWhatItWrote) {
  const json said = json::parse(RunWell({"export", "--load", "@c", "--out", "@sharded", "--dtype",
                                         "bf16", "--max-shard-bytes", "8KiB", "--json"}));
  EXPECT_EQ(said["schema_version"], 1);
  EXPECT_EQ(said["model_type"], "gpt2");
  EXPECT_EQ(said["dtype"], "bf16");
  EXPECT_EQ(said["tensors"], 16);
  EXPECT_EQ(said["tensor_bytes"], 2 * (257 * 16 + 16 * 16 + 2224 + 32));
  EXPECT_GT(said["files"].size(), 1u);
  for (const json& file : said["files"]) {
    EXPECT_TRUE(std::filesystem::exists(folder_ + "/sharded/" + file.get<std::string>())) << file;
  }
  EXPECT_EQ(json::parse(ReadBytes(folder_ + "/sharded/config.json"))["torch_dtype"], "bfloat16");
  EXPECT_NEAR(FirstLoss({"--load-hf", "@sharded"}), FirstLoss({"--load-hf", "@hf"}), 1e-2);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/sharded.tmp"));
}

TEST_F(HuggingFaceCommands, OtherCommandsTakeTheFolderAsTheirModel) {
  const json estimate = json::parse(RunWell({"estimate", "--model", "@hf", "--gbs", "4", "--seq",
                                             "8", "--profile", "generic", "--json"}));
  EXPECT_GT(estimate["step_time_s"], 0);
  RunWell({"search", "--model", "@hf", "--cluster", "local", "--profile", "generic", "--gbs", "4",
           "--seq", "8", "--prove", "0"});
  EXPECT_EQ(json::parse(RunWell({"models", "@hf"}))["hidden_size"], 16);
}

TEST_F(HuggingFaceCommands, RefusesFlagsThatMakeNoSense) {
  ExpectRefused({"train", "--config", "@run.json", "--load", "@c", "--load-hf", "@hf"}, 2,
                "--load-hf contradicts --load");
  ExpectRefused({"export", "--load", "@c"}, 2, "--out is required");
  ExpectRefused({"export", "--out", "@new"}, 2, "--load is required");
  ExpectRefused({"export", "--load", "@c", "--out", "@new", "--format", "gguf"}, 2,
                "unknown value 'gguf'");
  ExpectRefused({"export", "--load", "@c", "--out", "@new", "--dtype", "bf61"}, 2,
                "did you mean 'bf16'?");
}

TEST_F(HuggingFaceCommands, RefusesBrokenFolders) {
  ExpectRefused({"train", "--load-hf", "@nothing", "--gbs", "4", "--seq", "8"}, 3, "nothing");
  ExpectRefused({"train", "--model", "gpt2-tiny", "--load-hf", "@hf", "--gbs", "4", "--seq", "8"},
                3, "hf/config.json: describes a model with ffn_hidden_size 32; expected 256");
  const std::string weights = folder_ + "/hf/model.safetensors";
  const std::string bytes = ReadBytes(weights);
  WriteBytes(weights, bytes.substr(0, bytes.size() / 2));
  ExpectTrainingRefused("model.safetensors: tensor 'transformer.");
  std::string renamed = bytes;
  renamed.replace(renamed.find("transformer.wte"), 15, "transformer.wtf");
  WriteBytes(weights, renamed);
  ExpectTrainingRefused("hf: no file has a tensor 'transformer.wte.weight'");
  std::filesystem::remove(weights);
  ExpectTrainingRefused("hf: holds neither model.safetensors nor");
  WriteBytes(weights, bytes);
  std::filesystem::remove(folder_ + "/hf/config.json");
  ExpectTrainingRefused("hf/config.json: cannot be read");
}

TEST_F(HuggingFaceCommands, RefusesToExportOverOrWithoutWhatIsNeeded) {
  ExpectRefused({"export", "--load", "@c", "--out", "@hf"}, 7, "hf: already exists");
  ExpectRefused({"export", "--load", "@c", "--out", "@d.txt"}, 7, "d.txt: already exists");
  ExpectRefused({"export", "--load", "@nothing", "--out", "@new"}, 3, "nothing: no such folder");
  std::filesystem::create_directories(folder_ + "/new.tmp");
  ExpectRefused({"export", "--load", "@c", "--out", "@new"}, 7, "new.tmp: already exists");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/new"));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/new.tmp"));  // not ours to delete
}

TEST_F(HuggingFaceCommands, RefusesAModelThatHuggingFaceDoesNotKnow) {
  std::string run = kTinyRun;
  run.replace(run.find("\"name\": \"tiny\""), 14, "\"name\": \"odd\", \"norm\": \"rmsnorm\"");
  WriteBytes(folder_ + "/odd.json", run);
  RunWell({"train", "--config", "@odd.json", "--steps", "1", "--checkpoint", "@odd"});
  ExpectRefused(
      {"export", "--load", "@odd", "--out", "@new"}, 3,
      "model 'odd': no model type of Hugging Face that is known here describes it; in the "
      "nearest, gpt2, norm is \"layernorm\", not \"rmsnorm\"");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/new.tmp"));
}

TEST_F(HuggingFaceCommands, AFullDiskLeavesNothingBehind) {
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit limit = {6000, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  ExpectRefused({"export", "--load", "@c", "--out", "@new"}, 7, "new.tmp/model.safetensors");
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/new"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/new.tmp"));
}

}  // namespace
}  // namespace trimtab
