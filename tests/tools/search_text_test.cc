#include "tools/search/search_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "search/report.h"

namespace trimtab {
namespace {

SearchResult SomeResult() {
  SearchResult result;
  result.space = {
      .size = 10, .visited = 5, .feasible = 3, .pruned = {{"zero-requires-dp", 5}, {"memory", 2}}};
  RankingRow measured;
  measured.layout = "tp=2,dp=1,mbs=4,precision=bf16";
  measured.groups = "tp=2,dp=1,mbs=4";
  measured.precision = "bf16";
  measured.optimizer_state = "full";
  measured.predicted_tokens_per_s = 900;
  measured.predicted_peak_mem_bytes = 2048;
  measured.measured_tokens_per_s = 1000;
  measured.measured_peak_mem_bytes = 2048;
  measured.step_time_error = 0.111;
  measured.peak_mem_error = 0;
  measured.state = RowState::kMeasured;
  measured.standing = Standing::kBest;
  measured.visits = 3;
  measured.figure = {.tokens_per_s = 1000, .low = 990, .high = 1011, .trust = Trust::kMeasured};
  RankingRow predicted;
  predicted.layout = "tp=1,dp=2,mbs=4";
  predicted.groups = predicted.layout;
  predicted.precision = "fp32";
  predicted.optimizer_state = "reduced";
  predicted.predicted_tokens_per_s = 800;
  predicted.state = RowState::kPredicted;
  predicted.figure = {.tokens_per_s = 800, .low = 760, .high = 840, .trust = Trust::kModelled};
  predicted.candidate = 1;
  result.ranking = {measured, predicted, predicted};
  result.candidates.resize(2);
  result.candidates[0].key = measured.layout;
  result.candidates[1].key = predicted.layout;
  result.numerics = {{"bf16", "full", "bf16 is this", "full is that", 0, 0},
                     {"fp32", "reduced", "fp32 is that", "reduced is this", 1, 0.125}};
  result.recommendation.measured = true;
  result.recommendation.binds.text = "compute-bound: 74 % of the step computes";
  result.recommendation.alternative = 1;
  result.recommendation.alternative_cost = {.by = 0.125, .low = 0.1, .high = 0.15};
  result.recommendation.plain = 2;
  result.recommendation.plain_gain = 0.25;
  result.race.end = RaceEnd::kSeparated;
  result.recommendation.contender = 2;
  result.recommendation.contender_gain = 0.03;
  result.tokens = 3e11;
  result.front = {
      {.gpus = 2, .row = 0, .hours = 80, .gpu_hours = 160, .price = 320, .energy_kwh = 112},
      {.gpus = 4, .row = 1, .hours = 50, .gpu_hours = 200, .price = {}, .energy_kwh = {}}};
  result.front.front().on_front = true;
  result.explanations = {{"tp", "2", "1", 1, 0.031}};
  return result;
}

TEST(SearchText, SaysNoIntervalWhereThereIsNone) {
  SearchResult result = SomeResult();
  result.ranking[0].figure = {.tokens_per_s = 1000, .trust = Trust::kMeasured};
  const std::string text = SearchText(result, 2, /*bold=*/false);
  EXPECT_NE(text.find("at 1000 tokens/s (measured)"), std::string::npos) << text;
}

TEST(SearchText, TellsWhatWasPrunedRankedAndRecommended) {
  const std::string text = SearchText(SomeResult(), 2, /*bold=*/false);
  for (const char* part : {
           "10 candidates, 5 looked at, 3 of these fit\n      5  zero-requires-dp\n      2  "
           "memory\n",
           "\n1  tp=2,dp=1,mbs=4  bf16       full     1000 +-1.1 %  measured     2.00 KiB  best\n",
           "\n2  tp=1,dp=2,mbs=4  fp32       reduced   800 +-5.0 %  modelled          0 B  "
           "predicted\n",
           "measured beside predicted:\n",
           "\n1       3      1000        900     +11.1 %     2.00 KiB        +0.0 %\n",
           "time against price of 300B tokens:\n",
           "\n   2      1000     80        160    320  112  yes           tp=2,dp=1,mbs=4\n",
           "\n   4       800     50        200      -    -  no            tp=1,dp=2,mbs=4\n",
           "what its choices are worth, as predicted:\n",
           "\ntp         2       1          +3.1 %\n",
           "\nbf16      bf16 is this\nfp32      fp32 is that\nfull      full is that\n",
           "\nbest of bf16 full: tp=2,dp=1,mbs=4, recommended\n",
           "\nbest of fp32 reduced: tp=1,dp=2,mbs=4, 12.5 % worse\n",
           "... and 1 more\n",
           "recommended: tp=2,dp=1,mbs=4,precision=bf16 at 1000 +-1.1 % tokens/s (measured)\n",
           "it is ahead of every other (95 % sure)\n",
           "compute-bound: 74 % of the step computes\n",
           "next best: tp=1,dp=2,mbs=4, 12.5 % slower (10.0 to 15.0 %)\n",
           "against the plain default, tp=1,dp=2,mbs=4: +25 % tokens/s (its speed is modelled)\n",
           "worth measuring next, expected to be 3.0 % better: tp=1,dp=2,mbs=4\n",
       }) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
  }
}

// A table prints once what all rows share; predictions have no columns of measurements.
TEST(SearchText, ShowsOfLongLayoutsWhatDiffers) {
  SearchResult result = SomeResult();
  for (RankingRow& row : result.ranking) {
    row = result.ranking[1];
    row.groups = "tp=8,sp=1,pp=16,vp=4,ep=8,dp=64,zero=1,schedule=interleaved-1f1b,mbs=1";
  }
  result.ranking[1].groups += ",recompute=selective:layernorm+mlp_act";
  const std::string text = SearchText(result, 3, /*bold=*/false);
  for (const char* part : {
           "all rows: layout tp=8,sp=1,pp=16,vp=4,ep=8,dp=64,zero=1,schedule=interleaved-1f1b,"
           "mbs=1, precision fp32, state reduced, source modelled, standing predicted\n",
           "\n#  layout                                    tokens/s  peak memory\n",
           "\n1  -                                      800 +-5.0 %          0 B\n",
           "\n2  recompute=selective:layernorm+mlp_act  800 +-5.0 %          0 B\n",
       }) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin\n" << text;
  }
  EXPECT_EQ(text.find("measured beside predicted"), std::string::npos) << text;
}

TEST(SearchText, TellsWhatTheNextBestIsWorseIn) {
  SearchResult result = SomeResult();
  const std::pair<Objective, const char*> words[] = {
      {Objective::kMemory, "12.5 % more memory (10.0"},
      {Objective::kCost, "12.5 % more GPU time per token (10.0"}};
  for (const auto& [objective, word] : words) {
    result.rules.objective = objective;
    const std::string text = SearchText(result, 2, /*bold=*/false);
    EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}

TEST(SearchText, TellsHowTheRaceEnded) {
  SearchResult result = SomeResult();
  result.race.end = RaceEnd::kNotRun;
  EXPECT_NE(SearchText(result, 2, false).find("nothing was measured: the prediction decides\n"),
            std::string::npos);
  result.race.end = RaceEnd::kTie;
  result.candidates.resize(2);
  result.candidates[1].key = "tp=4";
  result.race.standing = {Standing::kBest, Standing::kTied};
  EXPECT_NE(SearchText(result, 2, false).find("a tie: these are within 1 % of it"),
            std::string::npos);
  EXPECT_NE(SearchText(result, 2, false).find(": tp=4\n"), std::string::npos);
  result.race.end = RaceEnd::kSmallLoss;
  result.race.expected_loss = 0.0021;
  EXPECT_NE(
      SearchText(result, 2, false)
          .find("others may be as fast, but it is expected to be 0.21 % slower than the true best: "
                "too little for further visits\n"),
      std::string::npos);
  result.race.best = 0;
  result.race.end = RaceEnd::kRounds;
  result.partial_reason = "40 rounds were not enough";
  EXPECT_NE(SearchText(result, 2, false)
                .find("not settled yet: 40 rounds were not enough\nit is expected to be "
                      "0.21 % slower than the true best\n"),
            std::string::npos);
  result.race.expected_loss.reset();
  EXPECT_NE(SearchText(result, 2, false)
                .find("\nhow much slower it is than the true best is unknown: too little was "
                      "measured\n"),
            std::string::npos);
}

TEST(SearchText, NamesThreeOfManyThatRace) {
  SearchResult result = SomeResult();
  result.candidates.resize(6);
  for (size_t i = 1; i < 6; ++i) result.candidates[i].key = fmt::format("tp={}", i);
  result.race.standing.assign(6, Standing::kRacing);
  result.race.standing[0] = Standing::kBest;
  const Findings findings = MakeFindings(result);
  EXPECT_EQ(findings.decided.at(1).layouts.size(), 5u) << "a page names all";
  EXPECT_NE(SearchText(result, 2, false)
                .find("not told apart from it yet: tp=1; tp=2; tp=3; and 2 more\n"),
            std::string::npos);
}

TEST(SearchText, TellsWhatIsNotMet) {
  SearchResult result = SomeResult();
  result.unmet = {"days<=2: 2.9 days"};
  EXPECT_NE(SearchText(result, 2, false).find("it does not meet --require days<=2: 2.9 days\n"),
            std::string::npos);
  result.unmet.clear();
  ServingResult& serving = result.serving.emplace();
  serving.relaxations = {"tpot.mean<31ms", "ttft.p99<2s"};
  serving.price_per_million = 1.25;
  serving.perplexity_rise = 1.004;
  const Findings findings = MakeFindings(result);
  EXPECT_EQ(findings.limits.at(0).text,
            "nothing meets the requirements: this comes closest; it would meet tpot.mean<31ms, "
            "ttft.p99<2s");
  EXPECT_EQ(findings.takes.at(0).text, "a million output tokens cost 1.25");
  EXPECT_EQ(findings.takes.at(1).text, "perplexity 1.004x the original weights'");
}

TEST(SearchText, TellsHowAVisitAndARoundEnded) {
  CandidateRecord candidate;
  candidate.key = "tp=2";
  RaceProgress progress;
  progress.round = 2;
  progress.visits = 5;
  TrialOutcome outcome;
  outcome.state = TrialState::kFailed;
  outcome.message = "exit code 1";
  outcome.seconds = 4;
  EXPECT_EQ(VisitText(candidate, outcome, progress),
            "round 2, visit 5: tp=2: failed: exit code 1 in 4 s");
  outcome.state = TrialState::kDone;
  candidate.visits.push_back({.round = 2});
  candidate.visits.back().measurement.tokens_per_s = 310;
  EXPECT_EQ(VisitText(candidate, outcome, progress), "round 2, visit 5: tp=2: 310 tokens/s in 4 s");
  progress.racing = 3;
  progress.speed = 0.8;
  progress.best_layout = "tp=2";
  progress.best_tokens_per_s = 388;
  EXPECT_EQ(RoundText({.id = 2}, progress),
            "round 2 done, the machine at 0.80 of its speed: best tp=2 at 388 tokens/s; 3 still "
            "racing");
}

}  // namespace
}  // namespace trimtab
