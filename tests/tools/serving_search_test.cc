// The search for serving with the real program: what it predicts, refuses and recommends; engines
// that serve for real.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/engine/data/data_test_util.h"
#include "tests/tools/processes.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

using nlohmann::json;

const char* const kLlama =
    " --for serving --model llama3.1-70b --cluster 8xh200 --workload "
    "lognormal:800:0.8/uniform:50-150 --requests 60 --concurrency 32";

/// A little model on one rank of this machine.
std::string Tiny(const std::string& folder, int requests = 12) {
  return "XDG_CACHE_HOME=" + folder +
         " tools/trimtab search -q --for serving --model gpt2-tiny --cluster local --max-ranks 1 "
         "--workload uniform:8-40/12 --concurrency 3 --allow sequences=1,4,tokens=64 --prove 2 "
         "--rounds 2 --study " +
         folder + "/study.db --requests " + std::to_string(requests);
}

/// Counts the candidates of a report's space that a rule removed.
int64_t PrunedBy(const json& report, const std::string& rule) {
  for (const json& each : report["space"]["pruned"]) {
    if (each["rule"] == rule) return each["count"];
  }
  return 0;
}

TEST(ServingSearch, EstimatesAConfiguration) {
  const Outcome outcome = Shell(std::string("tools/trimtab estimate -q --json --layout "
                                            "tp=4,weights=fp8,cache=fp8,replicas=2") +
                                kLlama);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json estimate = json::parse(outcome.output);
  EXPECT_EQ(estimate["gpus"], 8);
  EXPECT_GT(estimate["predicted"]["ttft_ms"]["p99"], estimate["predicted"]["ttft_ms"]["p50"]);
  // 70.6e9 weights in a byte each over 4 GPUs, beside a token table in two.
  EXPECT_NEAR(estimate["memory_bytes"]["weights"].get<double>(), 70.6e9 / 4, 1.5e9);
}

TEST(ServingSearch, RecommendsWithinTheRequirements) {
  const std::string folder = ScratchFolder();
  const Outcome outcome = Shell(std::string("tools/trimtab search -q --json --require "
                                            "'ttft.p99<2s,tpot.mean<40ms' --report ") +
                                folder + kLlama);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json report = json::parse(ReadWholeFile(folder + "/report.json"));
  const json& best = report["recommended"];
  const json& predicted = best["predicted"]["service"]["report"];
  EXPECT_LT(predicted["ttft_ms"]["p99"], 2000);
  EXPECT_LT(predicted["tpot_ms"]["mean"], 40);
  EXPECT_LE(best["predicted"]["peak_mem_bytes"], best["serving"]["memory_per_rank_bytes"]);
  EXPECT_TRUE(std::filesystem::exists(folder + "/REPORT.html"));
}

// Without a proof too, where a study is asked for.
TEST(ServingSearch, AStudyReportsAPrediction) {
  const std::string folder = ScratchFolder() + "/predicted";
  std::filesystem::remove_all(folder);
  const std::string study = " --study " + folder + ".db";
  std::filesystem::remove(folder + ".db");
  const Outcome searched =
      Shell("tools/trimtab search -q --allow tp=8,replicas=1 --report " + folder + study + kLlama);
  ASSERT_EQ(searched.status, 0) << searched.output;
  const Outcome told = Shell("tools/trimtab report -q --out " + folder + "/remade" + study);
  EXPECT_EQ(told.status, 0) << told.output;
  EXPECT_EQ(ReadWholeFile(folder + "/remade/report.json"), ReadWholeFile(folder + "/report.json"));
}

TEST(ServingSearch, SaysWhatWouldDo) {
  const Outcome outcome =
      Shell(std::string("tools/trimtab search -q --require 'tpot.mean<1ms'") + kLlama);
  EXPECT_EQ(outcome.status, 4);
  EXPECT_NE(outcome.output.find("nothing meets tpot.mean<1ms"), std::string::npos);
  EXPECT_NE(outcome.output.find("would meet tpot.mean<"), std::string::npos);
}

TEST(ServingSearch, RefusesInOneLine) {
  const std::pair<const char*, const char*> bad[] = {
      {"search --require 'ttft<5ms'", "--require: 'ttft<5ms'; expected"},
      {"search --weights fp9", "--weights: 'fp9'; expected"},
      {"search --allow tpp=4", "no dimension is called 'tpp'"},
      {"search --require 'perplexity<1.02x'", "without weights there is nothing to measure"},
      {"search --require 'perplexity<1.02x' --load x", "expected --held-out"},
      {"search --require 'perplexity<1.02x' --perplexity fp8=1.01", "expected weights/cache=rise"},
      {"search --require 'perplexity<1.02x' --perplexity fp8/fp8=1.01", "weights in bf16"},
      {"search --held-out x", "--held-out needs --require perplexity"},
      {"search --stack sglang", "--stack: 'sglang'; expected"},
      {"search --gbs 4", "unknown flag '--gbs'"},
      {"search --draft llama3.2-1b", "--draft needs --draft-acceptance"},
      {"search --draft-acceptance 0.5", "--draft-acceptance needs --draft"},
      {"estimate --layout draft=4", "draft: expected --draft"},
      {"estimate --layout lookup=4", "lookup needs --lookup-acceptance"},
      {"estimate --layout sequences=0", "sequences: '0'; expected"}};
  for (const auto& [words, message] : bad) {
    const Outcome outcome = Shell(std::string("tools/trimtab ") + words + kLlama);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_NE(outcome.output.find(message), std::string::npos) << outcome.output;
  }
  const Outcome unproved = Shell(std::string("tools/trimtab search --prove 2") + kLlama);
  EXPECT_EQ(unproved.status, 6);
  EXPECT_NE(unproved.output.find("nothing can be measured here"), std::string::npos);
  const Outcome outcome = Shell(
      "tools/trimtab estimate --for serving --model llama3.1-405b --cluster 1xh100 --workload 8/8 "
      "--concurrency 1");
  EXPECT_EQ(outcome.status, 4);
  EXPECT_NE(outcome.output.find("needs "), std::string::npos) << outcome.output;
}

// A draft model of another vocabulary proposes nothing that could stand.
TEST(ServingSearch, CountsDraftsThatDoNotFit) {
  const Outcome outcome = Shell(std::string("tools/trimtab search -q --json --draft gpt2-124m "
                                            "--draft-acceptance 0.7 --allow tp=8,replicas=1") +
                                kLlama);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json report = json::parse(outcome.output);
  EXPECT_GT(PrunedBy(report, "serving-draft"), 0);
  EXPECT_FALSE(report["recommended"]["serving"].contains("draft"));
}

// Tokens that a model proposes are proved as they are predicted: so many stand, and the engine does
// the work of all of them. What is recommended is served as it is written.
TEST(ServingSearch, ProvesADraftModel) {
  const std::string folder = ScratchFolder() + "/draft";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const Outcome outcome = Shell(
      Tiny(folder) + " --draft gpt2-tiny --draft-acceptance 1 --fix draft=4 --report " + folder);
  ASSERT_TRUE(outcome.status == 0 || outcome.status == 5) << outcome.output;
  const json report = json::parse(ReadWholeFile(folder + "/report.json"));
  const json& best = report["recommended"];
  EXPECT_EQ(best["serving"]["draft"]["tokens"], 4);
  const json& measured = best["measured"]["service"];
  EXPECT_EQ(measured["failed"], 0);
  const json& counts = best["predicted"]["service"]["counts"];
  EXPECT_EQ(counts["proposed_tokens"], counts["accepted_tokens"]);
  // 11 tokens of an answer behind the first one come in runs of five, five and one: three texts.
  EXPECT_GT(measured["itl_ms"]["mean"].get<double>(),
            3 * measured["tpot_ms"]["mean"].get<double>());
  const Outcome none = Shell(
      "tools/trimtab bench -q --workload 8/8 --requests 1 --concurrency 1 "
      "--acceptance 0.5 --config " +
      folder + "/report.json");
  EXPECT_EQ(none.status, 2) << none.output;
  EXPECT_NE(none.output.find("--acceptance needs --random-weights"), std::string::npos);
}

// Two replicas, of which one computes prompts: proved as they are predicted, and served as the
// report says.
TEST(ServingSearch, ProvesPromptsApart) {
  const std::string folder = ScratchFolder() + "/apart";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const Outcome outcome = Shell(
      "XDG_CACHE_HOME=" + folder +
      " tools/trimtab search -q --for serving --model gpt2-tiny --cluster local --max-ranks 2 "
      "--workload uniform:8-40/12 --requests 12 --concurrency 3 "
      "--allow tp=1,sequences=4,tokens=64,replicas=1,2,prefill=0,1 --prove 3 --rounds 1 --study " +
      folder + "/study.db --report " + folder);
  ASSERT_TRUE(outcome.status == 0 || outcome.status == 5) << outcome.output;
  const json report = json::parse(ReadWholeFile(folder + "/report.json"));
  EXPECT_GT(PrunedBy(report, "serving-prefill"), 0);
  int64_t apart = 0;
  for (const json& each : report["ranking"]) {
    if (each["service"]["prefill"] == 0) continue;
    ++apart;
    EXPECT_EQ(each["predicted"]["service"]["counts"]["moved_requests"], 12);
    ASSERT_FALSE(each["measured"].is_null()) << outcome.output;
    EXPECT_EQ(each["measured"]["service"]["failed"], 0);
    const Outcome told = Shell("(XDG_CACHE_HOME=" + folder +
                               " tools/trimtab estimate -q --json --for serving --model gpt2-tiny "
                               "--cluster local --workload uniform:8-40/12 --requests 12 "
                               "--concurrency 3 --layout " +
                               each["layout"].get<std::string>() + " 2>/dev/null)");
    ASSERT_EQ(told.status, 0) << told.output;
    const json serving = json::parse(told.output)["serving"];
    EXPECT_EQ(serving["prefill"], 1);
    EXPECT_EQ(serving["layout"]["dp"], 2);
    std::ofstream(folder + "/apart.json") << serving;
  }
  EXPECT_EQ(apart, 1);
  const std::string bench =
      "tools/trimtab bench -q --json --random-weights --workload 8/8 --requests 4 --concurrency 2 "
      "--config " +
      folder + "/apart.json";
  EXPECT_EQ(Shell(bench).status, 0);
  const Outcome twice = Shell(bench + " --prefill 1");
  EXPECT_EQ(twice.status, 2);
  EXPECT_NE(twice.output.find("--prefill contradicts --config"), std::string::npos);
  const Outcome nobody =
      Shell(std::string("tools/trimtab estimate -q --layout replicas=2,prefill=2") + kLlama);
  EXPECT_EQ(nobody.status, 4);
  EXPECT_NE(nobody.output.find("serving-prefill: 2 of 2 replicas"), std::string::npos)
      << nobody.output;
}

// Two engines serve for real; the winner's configuration starts, admits what was planned and does
// not pass its memory.
TEST(ServingSearch, ProvesOnThisMachine) {
  const std::string folder = ScratchFolder() + "/proof";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const Outcome outcome = Shell(Tiny(folder) + " --report " + folder);
  ASSERT_TRUE(outcome.status == 0 || outcome.status == 5) << outcome.output;
  const json report = json::parse(ReadWholeFile(folder + "/report.json"));
  EXPECT_EQ(report["recommended"]["state"], "measured");
  EXPECT_GE(report["recommended"]["visits"], 1);
  EXPECT_EQ(report["recommended"]["measured"]["service"]["failed"], 0);
  const Outcome served = Shell(
      "tools/trimtab bench -q --json --random-weights --workload 8/8 "
      "--requests 4 --concurrency 2 --config " +
      folder + "/report.json");
  EXPECT_EQ(served.status, 0) << served.output;

  // The study says the same as the search did.
  const std::string remade = folder + "/remade";
  const Outcome told =
      Shell("tools/trimtab report -q --study " + folder + "/study.db --out " + remade);
  EXPECT_EQ(told.status, 0) << told.output;
  for (const char* file : {"/report.json", "/REPORT.html"}) {
    EXPECT_EQ(ReadWholeFile(remade + file), ReadWholeFile(folder + file)) << file;
  }

  // Results of another problem lie where those of a study of the same name go: none is taken.
  std::filesystem::remove(folder + "/study.db");
  const Outcome other = Shell(Tiny(folder, /*requests=*/7) + " --report " + folder);
  ASSERT_TRUE(other.status == 0 || other.status == 5) << other.output;
  const json measured =
      json::parse(ReadWholeFile(folder + "/report.json"))["recommended"]["measured"]["service"];
  EXPECT_EQ(measured["requests"], 7);
}

}  // namespace
}  // namespace trimtab
