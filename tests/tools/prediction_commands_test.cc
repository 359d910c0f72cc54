// What the commands that predict print: estimate, validate, and a search without trials.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/run_cli.h"

namespace trimtab {
namespace {

using nlohmann::json;

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

class Predictions : public testing::Test {
 protected:
  Predictions() { WriteBytes(run_, kTinyRun); }

  std::string folder_ = ScratchFolder();
  std::string run_ = folder_ + "/run.json";
};

TEST_F(Predictions, EstimateAgreesBetweenItsTiers) {
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

TEST_F(Predictions, EstimateWritesATrace) {
  const std::string trace = folder_ + "/trace.json";
  const CliResult result = RunCli({"estimate", "--config", run_, "--trace", trace});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(json::parse(ReadBytes(trace), nullptr, false).is_discarded());
}

TEST_F(Predictions, EstimateOfWhatDoesNotFitSaysSo) {
  const CliResult result =
      RunCli({"estimate", "--config", run_, "--memory-per-rank", "4KiB", "-q"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_NE(result.out.find("peak memory"), std::string::npos);
  EXPECT_NE(result.err.find("memory per rank"), std::string::npos) << result.err;
}

// The stack of a search is in its report and in the run that it recommends, which estimate takes.
TEST_F(Predictions, ASearchForAnotherStackSaysSo) {
  const std::string report = folder_ + "/report";
  const std::vector<std::string> search = {
      "search", "--model", "llama2-7b",       "--cluster",  "8xh100",      "--gbs", "64",
      "--seq",  "4096",    "--stack",         "torchtitan", "--precision", "bf16",  "--top",
      "5",      "--study", folder_ + "/s.db", "--report",   report,        "-q"};
  const CliResult result = RunCli(search);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("software: torchtitan: ")) << result.out;
  EXPECT_NE(result.out.find("  torchtitan-has-no-such-zero\n"), std::string::npos) << result.out;
  const json written = json::parse(ReadBytes(report + "/report.json"));
  EXPECT_EQ(written["problem"]["cluster"]["stack"]["name"], "torchtitan");
  EXPECT_EQ(written["recommended"]["run"]["stack"], "torchtitan");
  EXPECT_NE(ReadBytes(report + "/REPORT.html").find(", with torchtitan"), std::string::npos);
  const json estimate = JsonOf({"estimate", "--config", report + "/report.json", "--cluster",
                                "8xh100", "--tier", "dry-run", "-q"});
  EXPECT_EQ(estimate["stack"], "torchtitan");
  EXPECT_NEAR(estimate["step_time_s"], written["recommended"]["predicted"]["step_time_s"], 1e-9);
}

TEST_F(Predictions, TrialsRunOurOwnEngineAlone) {
  const CliResult result =
      RunCli({"search", "--model", "gpt2-124m", "--gbs", "8", "--seq", "128", "--stack", "nemo",
              "--prove", "2", "--study", folder_ + "/s.db"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("--stack nemo: trials run trimtab alone; expected --prove 0"),
            std::string::npos)
      << result.err;
}

TEST_F(Predictions, ValidateComparesPredictionsWithRuns) {
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
  EXPECT_EQ(result["step_time_error"]["rows"], 2);
  EXPECT_EQ(result["peak_mem_error"]["rows"], 1);
}

// A sample of the runs that others published, of every source. Whole factors would show a mistake;
// what held-out runs are off by stands in cost_model/validation/README.md.
TEST_F(Predictions, PredictionsAgreeWithPublishedRuns) {
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

TEST_F(Predictions, RowsThatAreLeftOutAreNamed) {
  const json published = json::parse(ReadBytes("testdata/published/runs.json"));
  json runs = json::array({published[0]});
  for (const char* id : {"a", "b", "c", "d"}) {
    runs.push_back(published[0]);
    runs.back()["id"] = id;
    runs.back()["layout"]["tp"] = nullptr;
  }
  WriteBytes(folder_ + "/runs.json", runs.dump());
  const std::string text = RunCli({"validate", "--runs", folder_ + "/runs.json", "-q"}).out;
  EXPECT_NE(text.find("      4  not told: layout.tp  a, b, 2 more\n"), std::string::npos) << text;
}

TEST_F(Predictions, AFitStandsBesideWhatWasHeldOut) {
  const std::vector<std::string> fit = {"validate", "--runs", "testdata/published/runs.json",
                                        "--fit", "-q"};
  const json result = JsonOf(fit);
  for (const char* outcome : {"fit", "memory_fit"}) {
    const json& of = result[outcome];
    EXPECT_FALSE(of.contains("without")) << outcome;
    for (const char* held_out : {"by_family", "by_source", "by_gpu"}) {
      EXPECT_GT(of[held_out]["mean"], of["fitted"]["mean"]) << outcome << " " << held_out;
    }
  }

  const std::string table = "by family without";
  EXPECT_EQ(RunCli(fit).out.find(table), std::string::npos);
  std::vector<std::string> worths = fit;
  worths.push_back("--worths");
  const std::string text = RunCli(worths).out;
  EXPECT_NE(text.find(table), std::string::npos);
  EXPECT_NE(text.find("machine gemm_efficiency"), std::string::npos);
}

TEST_F(Predictions, OtherToolsStandBesideOurPredictions) {
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

TEST_F(Predictions, PredictionsAgreeWithPublishedServing) {
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

TEST_F(Predictions, EstimateNamesTheSoftwareItAssumes) {
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

TEST_F(Predictions, EstimateSaysWhatAWholeRunTakes) {
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
TEST_F(Predictions, EstimatesLlamaOnH200InBothPrecisions) {
  const auto estimate = [](const char* precision, const char* state,
                           const char* stack = "trimtab") {
    return JsonOf({"estimate", "--model", "llama2-7b", "--cluster", "8xh200", "--gbs", "128",
                   "--seq", "4096", "--layout", "mbs=2,zero=1", "--precision", precision,
                   "--optimizer-state", state, "--tier", "closed-form", "--stack", stack});
  };
  const json bf16 = estimate("bf16", "full");
  EXPECT_GT(bf16["tokens_per_s_per_gpu"], 12000);
  EXPECT_LT(bf16["tokens_per_s_per_gpu"], 15500);
  const json fp8 = estimate("fp8", "reduced");
  EXPECT_EQ(fp8["precision"], "fp8");
  EXPECT_EQ(fp8["optimizer_state"], "reduced");
  EXPECT_EQ(fp8["run"]["layout"]["master"], "remainder");
  const double tokens = 128 * 4096;
  const json theirs = estimate("fp8", "reduced", "nemo")["step_time_interval_s"];
  EXPECT_LT(tokens / theirs[1].get<double>() / 8, 16913);
  EXPECT_GT(tokens / theirs[0].get<double>() / 8, 16913);
  EXPECT_GT(fp8["tokens_per_s_per_gpu"], 16913);
  EXPECT_LT(fp8["tokens_per_s_per_gpu"], 1.35 * 16913);
  EXPECT_LT(fp8["mfu"], 0.6);
}

TEST_F(Predictions, SearchOnGpusConsidersBf16AndFp8) {
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

}  // namespace
}  // namespace trimtab
