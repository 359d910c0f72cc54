// What each command prints when all is well.

#include <gtest/gtest.h>

#include <iostream>
#include <sstream>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/run_cli.h"

namespace trimtab {
namespace {

using nlohmann::json;

/// Runs, expects success, and parses stdout.
json JsonOf(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const CliResult result = RunCli(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json parsed = json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(parsed.is_object()) << result.out;
  EXPECT_EQ(parsed.value("schema_version", 0), 1) << result.out;
  return parsed;
}

std::vector<json> JsonLines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

/// The report of a search without trials.
json SearchJson(std::vector<std::string> arguments) {
  const bool large = arguments[1] == "llama2-7b";
  for (const std::string& each :
       std::vector<std::string>{"--gbs", large ? "128" : "4", "--seq", large ? "4096" : "16",
                                "--prove", "0", "--dry-runs", "2", "--json"}) {
    arguments.push_back(each);
  }
  arguments.insert(arguments.begin(), "search");
  const CliResult result = RunCli(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, /*allow_exceptions=*/false);
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
  for (const char* name :
       {"search", "estimate", "validate", "profile", "calibrate", "train", "generate", "chat",
        "serve", "bench", "data", "report", "models", "clusters", "doctor"}) {
    EXPECT_NE(help.find(std::string("\n  ") + name + " "), std::string::npos) << name;
  }
}

TEST_F(Commands, ModelsListsThePresets) {
  EXPECT_NE(RunCli({"models"}).out.find("gpt2-124m"), std::string::npos);
  const json list = JsonOf({"models"});
  const bool found = std::any_of(list["models"].begin(), list["models"].end(), [](const json& m) {
    return m["name"] == "gpt2-124m" && m["parameters"] == 124439808;
  });
  EXPECT_TRUE(found);
  EXPECT_EQ(json::parse(RunCli({"models", "llama2-7b"}).out)["num_layers"], 32);
}

TEST_F(Commands, TheReadmeListsThePresets) {
  std::ifstream file("README.md");
  const std::string readme{std::istreambuf_iterator<char>(file), {}};
  const std::string table = RunCli({"models", "--markdown"}).out;
  EXPECT_NE(table.find("`falcon-7b` (6.92B), `falcon-40b` (41.3B)"), std::string::npos);
  EXPECT_NE(readme.find("\n" + table + "\n"), std::string::npos)
      << "README.md should hold what `trimtab models --markdown` prints:\n"
      << table;
}

TEST_F(Commands, ClustersDescribesTheMachine) {
  EXPECT_NE(RunCli({"clusters"}).out.find("local"), std::string::npos);
  EXPECT_EQ(JsonOf({"clusters", "16x8xh100"})["max_ranks"], 128);
}

TEST_F(Commands, DoctorPrintsARowForEachCheck) {
  const CliResult table = RunCli({"doctor", "--no-speed"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_EQ(table.err, "");
  const json checks = JsonOf({"doctor", "--no-speed"})["checks"];
  size_t row = 0;
  for (const char* what : {"processor", "vector units", "memory", "disk", "GPUs", "CUDA driver",
                           "CUDA runtime", "cuDNN", "NCCL", "MPI"}) {
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
  const std::vector<json> more = train({"--steps", "8", "--load", folder_ + "/c"});
  ASSERT_EQ(more.size(), 2u);
  EXPECT_EQ(more[0]["step"], 7);
  EXPECT_EQ(train({"--steps", "6", "--log-every", "4"}).size(), 3u);
  const CliResult done =
      RunCli({"train", "--config", run_, "--steps", "6", "--load", folder_ + "/c"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_NE(done.err.find("6 of 6 steps were done before; no step is left"), std::string::npos)
      << done.err;
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
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["attempt"], "a1");
  EXPECT_EQ(lines[1]["attempt"], "a2");
  EXPECT_EQ(lines[1]["state"], "done");
}

TEST_F(Commands, EstimateAgreesBetweenItsTiers) {
  const std::vector<std::string> base = {"estimate", "--model",  "gpt2-124m",  "--gbs",
                                         "16",       "--seq",    "128",        "--cluster",
                                         "8xh100",   "--layout", "tp=2,mbs=2", "--tier"};
  const auto estimate = [&](const char* tier) {
    std::vector<std::string> arguments = base;
    arguments.push_back(tier);
    return JsonOf(arguments);
  };
  const json closed = estimate("closed-form");
  const json dry = estimate("dry-run");
  for (const char* key : {"hardware_flops_per_rank", "model_flops", "peak_mem_bytes", "messages"}) {
    EXPECT_EQ(closed[key], dry[key]) << key;
  }
  EXPECT_GT(dry["step_time_s"], 0);
}

TEST_F(Commands, EstimateWritesATrace) {
  const std::string trace = folder_ + "/trace.json";
  const CliResult result = RunCli({"estimate", "--config", run_, "--trace", trace});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(json::parse(ReadBytes(trace), nullptr, false).is_discarded());
}

TEST_F(Commands, EstimateOfWhatDoesNotFitSaysSo) {
  const CliResult result =
      RunCli({"estimate", "--config", run_, "--memory-per-rank", "4KiB", "-q"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_NE(result.out.find("peak memory"), std::string::npos);
  EXPECT_NE(result.err.find("memory per rank"), std::string::npos) << result.err;
}

TEST_F(Commands, ValidateComparesPredictionsWithRuns) {
  const json runs = {{"schema_version", 1},
                     {"runs",
                      {{{"name", "one"},
                        {"run", json::parse(kTinyRun)},
                        {"step_time_s", 0.01},
                        {"peak_mem_bytes", 100000}},
                       {{"run", json::parse(kTinyRun)}, {"step_time_s", 0.02}}}}};
  WriteBytes(folder_ + "/runs.json", runs.dump());
  const json result = JsonOf({"validate", "--runs", folder_ + "/runs.json"});
  ASSERT_EQ(result["runs"].size(), 2u);
  const double predicted = result["runs"][0]["predicted_step_time_s"];
  EXPECT_DOUBLE_EQ(result["runs"][0]["step_time_error"], predicted / 0.01 - 1);
  EXPECT_EQ(result["step_time_error"]["runs"], 2);
  EXPECT_EQ(result["peak_mem_error"]["runs"], 1);
}

// A sample of the runs that others published, of every source. Whole factors would show a mistake;
// what held-out runs are off by stands in cost_model/README.md.
TEST_F(Commands, PredictionsAgreeWithPublishedRuns) {
  const json result = JsonOf({"validate", "--runs", "testdata/published/runs.json", "-q"});
  const json& summary = result["summary"];
  EXPECT_EQ(summary["taken"], result["rows"].size());
  EXPECT_EQ(summary["skipped"], result["skipped_rows"].size());
  for (const json& row : result["skipped_rows"]) EXPECT_NE(row["reason"], "") << row["id"];
  for (const json& row : result["rows"]) {
    double total = 0;
    for (const json& part : row["breakdown_s"]) total += part.get<double>();
    EXPECT_NEAR(total, row["predicted_step_time_s"], 1e-6 * total) << row["id"];
    EXPECT_LT(std::abs(row["step_time_error"].get<double>()), 0.5) << row.dump();
  }
  EXPECT_LT(summary["step_time_error"]["median"], 0.08);
  EXPECT_LT(summary["step_time_error"]["p90"], 0.25);
  EXPECT_GT(summary["memory_error"]["rows"], 0);
  for (const char* figure : {"kendall", "spearman", "top1_regret"}) {
    EXPECT_TRUE(summary[figure].is_number()) << figure;
  }
}

TEST_F(Commands, OtherToolsStandBesideOurPredictions) {
  const json result = JsonOf({"validate", "--runs", "testdata/published/runs.json", "--peers",
                              "testdata/published/peers.json", "-q"});
  const json& simumax = result["peers"][0];
  EXPECT_EQ(simumax["peer"], "SimuMax 1.2");
  EXPECT_EQ(simumax["rows"], simumax["cases"].size());
  EXPECT_GT(simumax["rows"], 0);
  for (const json& each : simumax["cases"]) {
    EXPECT_TRUE(each["their_step_time_error"].is_number()) << each.dump();
    EXPECT_TRUE(each["step_time_error"].is_number()) << each.dump();
  }
  for (const json& peer : result["peers"]) EXPECT_NE(peer["source"], "");
}

TEST_F(Commands, PredictionsAgreeWithPublishedServing) {
  const json result = JsonOf({"validate", "--runs", "testdata/published/serving.json", "-q"});
  const json& summary = result["summary"];
  EXPECT_EQ(summary["taken"], result["rows"].size());
  EXPECT_EQ(summary["fit"], result["rows"].size());
  EXPECT_EQ(summary["skipped"], result["skipped_rows"].size());
  EXPECT_EQ(summary["waited_for_room_false_alarms"], 0);
  EXPECT_LT(summary["all_error"]["mean"], 0.11);
  for (const json& row : result["rows"]) {
    double total = 0;
    for (const json& part : row["breakdown_s"]) total += part.get<double>();
    if (row["kind"] == "served") {
      EXPECT_NEAR(total, row["predicted_tpot_s"], 1e-9) << row["id"];
    }
  }
}

TEST_F(Commands, EstimateNamesTheSoftwareItAssumes) {
  const auto estimate = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"estimate",
                                          "--model",
                                          "llama2-7b",
                                          "--cluster",
                                          "8xh100",
                                          "--gbs",
                                          "64",
                                          "--seq",
                                          "4096",
                                          "--layout",
                                          "zero=1,precision=bf16",
                                          "--tier",
                                          "closed-form"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return JsonOf(arguments);
  };
  EXPECT_EQ(estimate({})["stack"], "trimtab");
  const json theirs = estimate({"--stack", "llm-foundry"});
  EXPECT_EQ(theirs["stack"], "llm-foundry");
  EXPECT_GT(theirs["step_time_s"], estimate({})["step_time_s"]);
}

TEST_F(Commands, EstimateSaysWhatAWholeRunTakes) {
  WriteBytes(folder_ + "/lab.json", R"({"name": "lab", "kind": "h100", "nodes": 4,
    "gpus_per_node": 8, "price_per_gpu_hour": 2})");
  const std::vector<std::string> base = {
      "estimate",   "--model", "llama2-7b", "--cluster", folder_ + "/lab.json",   "--gbs",
      "512",        "--seq",   "4096",      "--layout",  "zero=1,precision=bf16", "--tier",
      "closed-form"};
  EXPECT_FALSE(JsonOf(base).contains("training"));
  std::vector<std::string> asked = base;
  asked.insert(asked.end(), {"--tokens", "2T"});
  const json result = JsonOf(asked);
  const json& training = result["training"];
  EXPECT_DOUBLE_EQ(training["tokens"], 2e12);
  const double hours = training["gpu_hours"];
  EXPECT_NEAR(training["days"].get<double>(), hours / 32 / 24, 1e-9 * hours);
  EXPECT_NEAR(training["price"].get<double>(), 2 * hours, 1e-6 * hours);
  EXPECT_NEAR(training["energy_kwh"].get<double>(), 0.7 * hours, 1e-6 * hours);
  const double without_failures_s = 2e12 / result["tokens_per_s"].get<double>();
  EXPECT_NEAR(training["goodput"].get<double>(), without_failures_s / (hours * 3600 / 32), 1e-6);
  for (const char* bad : {"2X", "0", "-1T", ""}) {
    asked.back() = bad;
    EXPECT_EQ(RunCli(asked).exit_code, 2) << bad;
  }
}

// Llama 2 7B at sequence 4096 on 8 H200: 16,913 tokens/s a GPU in fp8 are published, with NeMo of
// early 2024, and no framework passed 15,500 in bf16. From below: Megatron-Core's README shows 41
// to 48 % of an H100's peak in bf16, which would be 10,300 here; a smaller model on more memory
// bandwidth does better.
TEST_F(Commands, EstimatesLlamaOnH200InBothPrecisions) {
  const auto estimate = [](const char* precision, const char* state) {
    return JsonOf({"estimate", "--model", "llama2-7b", "--cluster", "8xh200", "--gbs", "128",
                   "--seq", "4096", "--layout", "mbs=2,zero=1", "--precision", precision,
                   "--optimizer-state", state, "--tier", "closed-form"});
  };
  const json bf16 = estimate("bf16", "full");
  EXPECT_GT(bf16["tokens_per_s_per_gpu"], 12000);
  EXPECT_LT(bf16["tokens_per_s_per_gpu"], 15500);
  const json fp8 = estimate("fp8", "reduced");
  EXPECT_EQ(fp8["precision"], "fp8");
  EXPECT_EQ(fp8["optimizer_state"], "reduced");
  EXPECT_EQ(fp8["run"]["layout"]["master"], "remainder");
  const double tokens = 128 * 4096;
  EXPECT_LT(tokens / fp8["step_time_interval_s"][1].get<double>() / 8, 16913);
  EXPECT_GT(tokens / fp8["step_time_interval_s"][0].get<double>() / 8, 16913);
  EXPECT_GT(fp8["tokens_per_s_per_gpu"], 16913);
  EXPECT_LT(fp8["tokens_per_s_per_gpu"], 1.35 * 16913);
  EXPECT_LT(fp8["mfu"], 0.6);
}

TEST_F(Commands, SearchOnGpusConsidersBf16AndFp8) {
  const json report =
      SearchJson({"--model", "llama2-7b", "--cluster", "8xh200", "--optimizer-state",
                  "full,reduced", "--study", folder_ + "/gpus.db"});
  EXPECT_EQ(report["problem"]["precisions"], (json{"bf16", "fp8"}));
  EXPECT_EQ(report["problem"]["optimizer_states"], (json{"full", "reduced"}));
  EXPECT_EQ(report["recommended"]["precision"], "fp8");
  EXPECT_EQ(report["numerics"].size(), 4u);

  const json a100 =
      SearchJson({"--model", "llama2-7b", "--cluster", "8xa100", "--study", folder_ + "/a100.db"});
  EXPECT_EQ(a100["problem"]["precisions"], json::array({"bf16"})) << "it has no fp8";
  const json cpu =
      SearchJson({"--model", "gpt2-tiny", "--profile", "generic", "--study", folder_ + "/cpu.db"});
  EXPECT_EQ(cpu["problem"]["precisions"], json::array({"fp32"}));
  EXPECT_EQ(cpu["problem"]["optimizer_states"], json::array({"full"}));
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
