// What each command prints when all is well.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/run_cli.h"

namespace trimtab {
namespace {

using nlohmann::json;

std::vector<json> JsonLines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

class Commands : public testing::Test {
 protected:
  Commands() { WriteBytes(run_, kTinyRun); }

  std::string folder_ = ScratchFolder();
  std::string run_ = folder_ + "/run.json";
};

TEST_F(Commands, HelpGoesToStdout) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"-h"}, {"train", "--help"}, {"data", "build", "-h"}}) {
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.out.find("Usage: trimtab"), std::string::npos) << result.out;
    EXPECT_EQ(result.err, "");
  }
  EXPECT_TRUE(RunCli({"--version"}).out.starts_with("trimtab "));
}

TEST_F(Commands, HelpListsEveryCommand) {
  const std::string help = RunCli({"--help"}).out;
  for (const char* name : {"search", "estimate", "validate", "profile", "calibrate", "train",
                           "generate", "chat", "serve", "bench", "quantize", "export", "data",
                           "report", "dashboard", "models", "clusters", "doctor"}) {
    EXPECT_NE(help.find(std::string("\n  ") + name + " "), std::string::npos) << name;
  }
}

// Each part of a command may add to what follows its flags.
TEST_F(Commands, HelpSaysWhatLayoutsAndLaunchersTake) {
  const std::string help = RunCli({"train", "--help"}).out;
  EXPECT_NE(help.find("Keys of --layout:"), std::string::npos) << help;
  EXPECT_NE(help.find("partition=..."), std::string::npos) << help;
}

TEST_F(Commands, ModelsListsThePresets) {
  EXPECT_NE(RunCli({"models"}).out.find("gpt2-124m"), std::string::npos);
  const json list = JsonOf({"models"});
  const bool found = std::any_of(list["models"].begin(), list["models"].end(), [](const json& m) {
    return m["name"] == "gpt2-124m" && m["parameters"] == 124439808;
  });
  EXPECT_TRUE(found);
  const bool active = std::any_of(list["models"].begin(), list["models"].end(), [](const json& m) {
    return m["name"] == "mixtral-8x7b" && m["active_parameters"] == 12'879'925'248;
  });
  EXPECT_TRUE(active);
  EXPECT_EQ(json::parse(RunCli({"models", "llama2-7b"}).out)["num_layers"], 32);
}

TEST_F(Commands, ThePageOfModelsListsThePresets) {
  std::ifstream file("docs/models.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::string table = RunCli({"models", "--markdown"}).out;
  EXPECT_NE(table.find("`falcon-7b` (6.92B), `falcon-40b` (41.3B)"), std::string::npos);
  EXPECT_NE(page.find("\n" + table), std::string::npos)
      << "docs/models.md should hold what `trimtab models --markdown` prints:\n"
      << table;
}

TEST_F(Commands, ClustersDescribesTheMachine) {
  EXPECT_NE(RunCli({"clusters"}).out.find("local"), std::string::npos);
  EXPECT_EQ(JsonOf({"clusters", "16x8xh100"})["max_ranks"], 128);
  EXPECT_EQ(JsonOf({"clusters", "local", "--profile", "generic"})["calibrated"], false);
}

TEST_F(Commands, DoctorPrintsARowForEachCheck) {
  const CliResult table = RunCli({"doctor", "--no-speed"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_EQ(table.err, "");
  const json checks = JsonOf({"doctor", "--no-speed"})["checks"];
  size_t row = 0;
  for (const char* what :
       {"processor", "vector units", "memory", "disk", "home", "temporary files", "shared memory",
        "GPUs", "CUDA driver", "CUDA runtime", "cuDNN", "NCCL", "MPI"}) {
    EXPECT_NE(table.out.find(std::string("\n") + what + " "), std::string::npos) << table.out;
    ASSERT_LT(row, checks.size());
    EXPECT_EQ(checks[row]["check"], what);
    EXPECT_TRUE(checks[row]["health"] == "ok" || checks[row]["health"] == "note") << checks[row];
    EXPECT_NE(checks[row]["finding"], "");
    ++row;
  }
}

TEST_F(Commands, DoctorListsTheRules) {
  EXPECT_NE(RunCli({"doctor", "--rules"}).out.find("heads-divisible-by-tp"), std::string::npos);
  EXPECT_GT(JsonOf({"doctor", "--rules"})["rules"].size(), 4u);
}

TEST_F(Commands, DataBuildsWhatInfoReads) {
  WriteBytes(folder_ + "/a.txt", "one\n\ntwo\n");
  const std::vector<std::string> build = {
      "data",  "build",        "--input",     folder_ + "/a.txt",
      "--out", folder_ + "/d", "--documents", "blank-line"};
  EXPECT_EQ(JsonOf(build)["documents"], 2);
  const json info = JsonOf({"data", "info", folder_ + "/d"});
  EXPECT_EQ(info["tokens"], 10);
  EXPECT_EQ(info["documents"], 2);
  EXPECT_EQ(info["vocab_size"], 257);
  EXPECT_EQ(info["max_token"], 256);
}

TEST_F(Commands, WordsThatNameCommandsMayBeFiles) {
  WriteBytes(folder_ + "/a.txt", "one");
  WriteBytes("report", "two");
  const json built =
      JsonOf({"data", "build", "--out", folder_ + "/d", "--input", folder_ + "/a.txt", "report"});
  EXPECT_EQ(built["documents"], 2);
  std::filesystem::remove("report");
}

TEST_F(Commands, DataSaysWhichFormatItTakesAndWhy) {
  WriteBytes(folder_ + "/a.txt", "one");
  WriteBytes(folder_ + "/b.jsonl", "{\"text\": \"two\"}\n");
  WriteBytes(folder_ + "/c", "\xff");
  const auto build = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"data", "build", "--out", folder_ + "/d", "--input"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  const std::string a = folder_ + "/a.txt";
  const std::string b = folder_ + "/b.jsonl";
  EXPECT_NE(build({a}).find("format: text, from the names"), std::string::npos);
  EXPECT_NE(build({b}).find("format: jsonl, from the names"), std::string::npos);
  EXPECT_EQ(JsonOf({"data", "info", folder_ + "/d"})["tokens"], 4);
  EXPECT_NE(build({a, b}).find("format: jsonl for 1, text for 1, from the"), std::string::npos);
  EXPECT_NE(build({b, "--format", "text"}).find("format: text, as --format says"),
            std::string::npos);
  EXPECT_NE(build({folder_ + "/c", "--format", "bytes"}).find("format: bytes, as --format says"),
            std::string::npos);
}

TEST_F(Commands, TrainReportsWhatRoutersSay) {
  json run = json::parse(kTinyRun);
  run["model"] = {{"vocab_size", 257},
                  {"hidden_size", 32},
                  {"num_layers", 2},
                  {"num_heads", 4},
                  {"max_sequence_length", 64},
                  {"moe",
                   {{"num_experts", 4},
                    {"ffn_hidden_size", 32},
                    {"aux_loss_coeff", 0.01},
                    {"expert_bias", true}}}};
  run["optimizer"]["decay_steps"] = 10;
  WriteBytes(run_, run.dump());
  const std::vector<std::string> base = {"train", "--config", run_, "--json"};
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    const CliResult result = RunCli(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return JsonLines(result.out);
  };
  const std::vector<json> steps = train({"--steps", "3"});
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_NEAR(steps[0]["aux_loss"], 2 * 0.01, 0.01) << "two layers, close to balance";
  EXPECT_EQ(steps[0]["z_loss"], 0);
  EXPECT_GE(steps[0]["expert_imbalance"], 1);
  // The bias of the experts is in the checkpoint.
  train({"--steps", "2", "--checkpoint", folder_ + "/c"});
  const std::vector<json> resumed = train({"--steps", "3", "--load", folder_ + "/c"});
  ASSERT_EQ(resumed.size(), 1u);
  EXPECT_EQ(resumed[0]["loss"], steps[2]["loss"]);
  EXPECT_EQ(resumed[0]["expert_imbalance"], steps[2]["expert_imbalance"]);
}

TEST_F(Commands, TrainWritesJsonLinesAndACheckpointItCanGoOnFrom) {
  MakeDataset(folder_ + "/d");
  const std::vector<std::string> base = {"train",  "--config",     run_,
                                         "--data", folder_ + "/d", "--json"};
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    const CliResult result = RunCli(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return JsonLines(result.out);
  };
  const std::vector<json> steps = train({"--steps", "6", "--checkpoint", folder_ + "/c"});
  ASSERT_EQ(steps.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(steps[i]["step"], i + 1);
    for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_s"}) {
      EXPECT_TRUE(steps[i][key].is_number()) << key;
    }
  }
  EXPECT_LT(steps[5]["loss"], steps[0]["loss"]);
  const std::vector<json> more =
      train({"--steps", "8", "--schedule-steps", "6", "--load", folder_ + "/c"});
  ASSERT_EQ(more.size(), 2u);
  EXPECT_EQ(more[0]["step"], 7);
  EXPECT_EQ(train({"--steps", "6", "--log-every", "4"}).size(), 3u);
  const std::vector<json> first_and_last = train(
      {"--steps", "10", "--log-every", "20", "--load", folder_ + "/c", "--override", "steps"});
  ASSERT_EQ(first_and_last.size(), 2u);
  EXPECT_EQ(first_and_last[0]["step"], 7);
  EXPECT_EQ(first_and_last[1]["step"], 10);
  const CliResult done = RunCli({"train", "--config", run_, "--data", folder_ + "/d", "--steps",
                                 "6", "--load", folder_ + "/c"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_NE(done.err.find("6 of 6 steps were done before; no step is left"), std::string::npos)
      << done.err;
}

// As the README's pair of commands: a run of nine steps, and one of five that is extended.
TEST_F(Commands, TrainGoesOnWithoutASeamOrIsRefused) {
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--config", run_, "--json", "-q"});
    return RunCli(more);
  };
  const std::string c = folder_ + "/c";
  const std::vector<json> whole = JsonLines(train({"--steps", "9"}).out);
  ASSERT_EQ(whole.size(), 9u);
  ASSERT_EQ(train({"--steps", "5", "--schedule-steps", "9", "--checkpoint", c}).exit_code, 0);
  const CliResult second = train({"--steps", "9", "--load", c});
  EXPECT_EQ(second.err, "");
  const std::vector<json> rest = JsonLines(second.out);
  ASSERT_EQ(rest.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    for (const char* key : {"step", "loss", "grad_norm", "lr"}) {
      EXPECT_EQ(rest[i][key], whole[i + 5][key]) << key;
    }
  }
  const CliResult refused = train({"--steps", "12", "--lr", "1e-3", "--load", c});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(refused.err.ends_with(
      "trimtab: " + c +
      ": this run would not continue the one that saved it: learning_rate, min_learning_rate, "
      "steps changed (--schedule-steps 9 keeps the schedule); expected the same, or --override "
      "learning_rate,min_learning_rate,steps\n"))
      << refused.err;
  EXPECT_EQ(train({"--steps", "12", "--checkpoint", c, "--resume"}).exit_code, 2);
  EXPECT_EQ(train({"--steps", "12", "--load", c, "--override", "steps"}).exit_code, 0);
  EXPECT_EQ(train({"--steps", "9", "--override", "steps"}).exit_code, 2) << "nothing to go on from";
}

TEST_F(Commands, TrainTakesARateThoughTheRunHasNone) {
  json run = json::parse(kTinyRun);
  run["optimizer"] = {{"learning_rate", 0}, {"min_learning_rate", 0}, {"warmup_steps", 1}};
  WriteBytes(run_, run.dump());
  const CliResult result =
      RunCli({"train", "--config", run_, "--steps", "4", "--lr", "1e-3", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const json& step : JsonLines(result.out)) EXPECT_TRUE(step["lr"].is_number()) << step;
}

TEST_F(Commands, TrainSaysInOneLineThatItDiverged) {
  json run = json::parse(kTinyRun);
  run["optimizer"] = {{"learning_rate", 1000},
                      {"min_learning_rate", 1000},
                      {"warmup_steps", 0},
                      {"weight_decay", 900}};
  WriteBytes(run_, run.dump());
  const CliResult result = RunCli({"train", "--config", run_, "--steps", "40", "-q"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_TRUE(result.err.starts_with("trimtab: step ")) << result.err;
  EXPECT_NE(result.err.find("not finite"), std::string::npos) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST_F(Commands, DataBuildNeedsAPrefix) {
  WriteBytes(folder_ + "/a.txt", "one");
  const CliResult result = RunCli({"data", "build", "--input", folder_ + "/a.txt", "--out", ""});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err, "trimtab: --out is empty; expected the dataset's PREFIX\n");
}

TEST_F(Commands, TrainTakesARunFromFlags) {
  const CliResult result = RunCli({"train", "--model", "gpt2-tiny", "--gbs", "4", "--seq", "16",
                                   "--layout", "dp=2,mbs=1", "--steps", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("step     2/2"), std::string::npos) << result.out;
}

TEST_F(Commands, ProfileMeasures) {
  const json measured =
      JsonOf({"profile", "--config", run_, "--steps", "2", "--max-steps", "3", "--warmup", "1"});
  EXPECT_GT(measured["step_time_s"], 0);
  EXPECT_GT(measured["tokens_per_s_per_gpu"], 0);
  EXPECT_GT(measured["peak_mem_bytes"], 0);
  EXPECT_EQ(measured["run"]["global_batch"], 4);
  EXPECT_NE(RunCli({"profile", "--config", run_, "--max-steps", "2", "--steps", "1"})
                .out.find("tokens/s"),
            std::string::npos);
}

TEST_F(Commands, ProfileAppendsAResultWheneverItIsTold) {
  const std::string results = folder_ + "/results.jsonl";
  std::istringstream commands("visit a1\nvisit a2\n");
  std::streambuf* const terminal = std::cin.rdbuf(commands.rdbuf());
  const CliResult result = RunCli(
      {"profile", "--config", run_, "--result", results, "--steps", "1", "--max-seconds", "1"});
  std::cin.rdbuf(terminal);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  const std::vector<json> lines = JsonLines(ReadBytes(results));
  ASSERT_EQ(lines.size(), 4u);  // of each visit, that its ranks have met, and its result
  const char* const states[] = {"started", "done", "started", "done"};
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["attempt"], i < 2 ? "a1" : "a2");
    EXPECT_EQ(lines[i]["state"], states[i]);
  }
}

TEST_F(Commands, ProfileScansFp8LayerByLayer) {
  MakeDataset(folder_ + "/d");
  const std::vector<std::string> scan = {
      "profile", "--model",      "gpt2-tiny",  "--gbs",   "2", "--seq",           "16",
      "--data",  folder_ + "/d", "--fp8-scan", "--steps", "1", "--fp8-threshold", "0.0001"};
  const json result = JsonOf(scan);
  EXPECT_EQ(result["steps"], 1);
  EXPECT_EQ(result["fp8"]["bf16_layers"].size(), result["layers"].size());
  const CliResult text = RunCli(scan);
  EXPECT_NE(text.out.find("mlp.linear_fc2"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\"bf16_layers\":[\"decoder.layers.0."), std::string::npos) << text.out;
}

TEST_F(Commands, TheLogFileGetsACopy) {
  const std::string log = folder_ + "/log";
  EXPECT_EQ(RunCli({"train", "--config", run_, "--log-file", log, "-q", "--steps", "1"}).exit_code,
            0);
  EXPECT_TRUE(std::filesystem::exists(log));
}

}  // namespace
}  // namespace trimtab
