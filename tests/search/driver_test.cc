#include "search/driver.h"

#include <gtest/gtest.h>

#include <set>

#include "engine/base/error.h"
#include "search/report.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

/// Remembers what it was told; asks to stop after a number of trials.
class RecordingEvents : public SearchEvents {
 public:
  void OnResume(int64_t measured, int64_t ingested) override {
    resumed_measured = measured;
    resumed_ingested = ingested;
  }
  void OnSpace(const SpaceSummary& summary) override { space = summary; }
  void OnVisitStart(const CandidateRecord&, const RaceProgress&) override { ++started; }
  void OnVisitEnd(const CandidateRecord&, const TrialOutcome&,
                  const RaceProgress& progress) override {
    last = progress;
    ++ended;
  }
  void OnRoundEnd(const RoundRecord& round, const RaceProgress&) override {
    EXPECT_GT(round.id, rounds);
    rounds = round.id;
    EXPECT_TRUE(round.speed.has_value());
  }
  StopRequest stop_requested() override { return ended >= stop_after ? stop : StopRequest::kNone; }

  int64_t resumed_measured = -1;
  int64_t resumed_ingested = -1;
  SpaceSummary space;
  RaceProgress last;
  int64_t rounds = 0;
  int64_t started = 0;
  int64_t ended = 0;
  int64_t stop_after = 1000;
  StopRequest stop = StopRequest::kDrain;
};

struct Harness {
  FakePredictor predictor;
  FakeRunner runner;
  RecordingEvents events;

  SearchResult Run(const TrainingSearch& options) {
    return RunSearch(options, predictor, runner, events);
  }
};

std::vector<std::string> PredictedOrder() {
  Harness harness;
  TrainingSearch options = TinySearch(ScratchPath("order.db"));
  options.race.prove_count = 0;
  std::vector<std::string> layouts;
  for (const RankingRow& row : harness.Run(options).ranking) layouts.push_back(row.layout);
  return layouts;
}

TEST(Driver, RecommendsTheMeasuredBest) {
  Harness harness;
  const SearchResult result = harness.Run(TinySearch(ScratchPath("best.db")));
  EXPECT_FALSE(result.partial);
  EXPECT_EQ(result.race.end, RaceEnd::kSeparated);
  EXPECT_GE(harness.runner.runs.size(), 3u);
  EXPECT_TRUE(result.recommendation.measured);
  double best = 0;
  for (const CandidateRecord& candidate : result.candidates) {
    if (candidate.measured) best = std::max(best, candidate.measured->tokens_per_s);
  }
  EXPECT_EQ(result.recommended_candidate().measured->tokens_per_s, best);
  EXPECT_EQ(harness.events.last.best_tokens_per_s, best);
  EXPECT_EQ(harness.events.rounds, static_cast<int64_t>(result.rounds.size()));
  EXPECT_EQ(harness.predictor.dry_runs, 4);
}

TEST(Driver, FailedVisitsCountToo) {
  const std::vector<std::string> order = PredictedOrder();
  Harness harness;
  for (const std::string& layout : order) harness.runner.failures[layout] = {TrialState::kFailed};
  TrainingSearch options = TinySearch(ScratchPath("failed_visits.db"));
  options.most_visits = 2;
  const SearchResult result = harness.Run(options);
  EXPECT_EQ(harness.events.ended, 2);
  EXPECT_EQ(result.partial_reason, "the 2 visits allowed were used up");
}

TEST(Driver, ChoosesAmongGlobalBatches) {
  Harness harness;
  TrainingSearch options = TinySearch(ScratchPath("batches.db"));
  options.problem.global_batches = {2, 4};
  const SearchResult result = harness.Run(options);
  std::set<int64_t> batches;
  std::set<std::string> keys;
  for (const RankingRow& row : result.ranking) {
    const CandidateRecord& candidate = result.candidates[row.candidate];
    batches.insert(candidate.run.global_batch);
    keys.insert(candidate.key);
    const std::string batch = fmt::format("gbs={},", candidate.run.global_batch);
    EXPECT_EQ(candidate.key, batch + row.layout);
    EXPECT_TRUE(row.groups.starts_with(batch)) << row.groups;
  }
  EXPECT_EQ(batches, (std::set<int64_t>{2, 4}));
  EXPECT_EQ(keys.size(), result.ranking.size());
}

TEST(Driver, CountsWhatEachRulePruned) {
  Harness harness;
  TrainingSearch options = TinySearch(ScratchPath("counts.db"));
  options.problem.memory_per_rank_bytes = 2000;
  const SpaceSummary space = harness.Run(options).space;
  int64_t pruned = 0;
  for (const auto& [rule, count] : space.pruned) {
    EXPECT_GT(count, 0) << rule;
    pruned += count;
  }
  EXPECT_EQ(space.size, 14445);
  EXPECT_EQ(space.feasible + space.cut_by_bound + pruned, space.size);
  EXPECT_EQ(space.visited + space.cut_by_rule + space.cut_by_memory + space.cut_by_bound,
            space.size);
  ASSERT_FALSE(space.pruned.empty());
  EXPECT_EQ(space.pruned.back().first, "memory");
  EXPECT_GT(space.feasible, 0);
}

TEST(Driver, NothingFeasibleSaysWhatPrunedEverything) {
  Harness harness;
  TrainingSearch options = TinySearch(ScratchPath("infeasible.db"));
  options.problem.memory_per_rank_bytes = 1;
  try {
    harness.Run(options);
    FAIL() << "found something";
  } catch (const InfeasibleError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("all 14445 candidates were pruned"), std::string::npos) << text;
    EXPECT_NE(text.find("by memory; the leanest, "), std::string::npos) << text;
  }
  EXPECT_EQ(harness.events.started, 0);
}

TEST(Driver, FailedTrialsAreReplacedAndCrashesRetriedOnce) {
  const std::vector<std::string> order = PredictedOrder();
  Harness harness;
  harness.runner.failures[order[0]] = {TrialState::kOutOfMemory};
  harness.runner.failures[order[1]] = {TrialState::kCrashed};
  harness.runner.failures[order[2]] = {TrialState::kCrashed, TrialState::kCrashed};
  const SearchResult result = harness.Run(TinySearch(ScratchPath("failures.db")));
  EXPECT_EQ(harness.events.last.failed, 2);
  EXPECT_EQ(harness.runner.runs.at(order[0]), 1) << "out of memory is believed at once";
  EXPECT_GE(harness.runner.runs.at(order[1]), 1) << "a crash is tried once more";
  EXPECT_EQ(harness.runner.runs[order[2]], 0);
  EXPECT_EQ(result.ranking.back().layout, order[2]);
  EXPECT_EQ(result.ranking.back().failure, TrialState::kCrashed);
  EXPECT_EQ(result.ranking[result.ranking.size() - 2].failure, TrialState::kOutOfMemory);
}

TEST(Driver, WhenEveryTrialFailsItSaysWhy) {
  Harness harness;
  for (const std::string& layout : PredictedOrder()) {
    harness.runner.failures[layout] = {TrialState::kNumeric};
  }
  const TrainingSearch options = TinySearch(ScratchPath("all_fail.db"));
  try {
    harness.Run(options);
    FAIL() << "found something";
  } catch (const InfeasibleError& error) {
    EXPECT_NE(std::string(error.what()).find("none of the 6 candidates tried ran"),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("numeric: planned"), std::string::npos);
  }
}

int64_t Counted(const std::string& path) {
  int64_t failures = 0;
  const std::unique_ptr<Study> study = Study::OpenExisting(path);
  for (const CandidateRecord& candidate : study->Candidates()) {
    failures += candidate.failures + candidate.suspects;
  }
  return failures;
}

/// A search that ends because of its environment, and goes on when that is well.
void ExpectBlameless(Harness& harness, const std::string& path, const std::string& words) {
  TrainingSearch options = TinySearch(path);
  try {
    harness.Run(options);
    FAIL() << "found something";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
  EXPECT_EQ(Counted(path), 0);
  harness.runner.failures.clear();
  harness.events = {};
  options.study.resume = true;
  const SearchResult result = harness.Run(options);
  EXPECT_FALSE(result.partial);
  EXPECT_EQ(Counted(path), 0);
}

TEST(Driver, FailuresThatAllShareAreTheEnvironments) {
  for (const TrialState state :
       {TrialState::kFailed, TrialState::kCrashed, TrialState::kTimedOut}) {
    Harness harness;
    for (const std::string& layout : PredictedOrder()) {
      harness.runner.failures[layout] = std::vector<TrialState>(40, state);
    }
    ExpectBlameless(harness, ScratchPath("shared_" + Name(state) + ".db"),
                    "no candidate is to blame");
  }
}

TEST(Driver, ALauncherThatStartsNothingEndsTheSearch) {
  Harness harness;
  for (const std::string& layout : PredictedOrder()) {
    harness.runner.failures[layout] = {TrialState::kInterrupted};
  }
  ExpectBlameless(harness, ScratchPath("unstarted.db"), "could not be started: planned");
}

TEST(Driver, AnEnvironmentThatFailsLaterIsFoundByACandidateThatRan) {
  Harness harness;
  const std::string path = ScratchPath("later.db");
  harness.events.stop_after = 2;  // two have run
  harness.Run(TinySearch(path));
  for (const std::string& layout : PredictedOrder()) {
    harness.runner.failures[layout] = std::vector<TrialState>(40, TrialState::kCrashed);
  }
  harness.events = {};
  TrainingSearch options = TinySearch(path);
  options.study.resume = true;
  EXPECT_THROW(harness.Run(options), EnvironmentError);
  EXPECT_LE(harness.events.ended, 3) << "it is not tried with all";
  EXPECT_EQ(Counted(path), 0);
  harness.runner.failures.clear();
  harness.events = {};
  EXPECT_FALSE(harness.Run(options).partial);
}

TEST(Driver, DrainEndsAfterTheRunningTrialAndResumeGoesOn) {
  const std::string path = ScratchPath("drain.db");
  Harness harness;
  harness.events.stop_after = 1;
  const SearchResult first = harness.Run(TinySearch(path));
  EXPECT_TRUE(first.partial);
  EXPECT_EQ(first.partial_reason, "stopped on request");
  EXPECT_EQ(ResultFromStudy(*Study::OpenExisting(path)).partial_reason, "stopped on request");
  EXPECT_TRUE(first.recommendation.measured);
  EXPECT_EQ(harness.events.ended, 1);

  TrainingSearch options = TinySearch(path);
  options.study.resume = true;
  harness.events = {};
  const int64_t closed_forms = harness.predictor.closed_forms;
  const SearchResult second = harness.Run(options);
  EXPECT_FALSE(second.partial);
  EXPECT_EQ(Study::OpenExisting(path)->stopped_by(), "");
  EXPECT_EQ(harness.events.resumed_measured, 1);
  EXPECT_EQ(harness.predictor.closed_forms, closed_forms) << "predictions are kept";
  EXPECT_EQ(harness.predictor.dry_runs, 4);
  Harness whole;
  whole.Run(TinySearch(ScratchPath("whole.db")));
  EXPECT_EQ(harness.runner.runs, whole.runner.runs) << "the same visits as without a stop";

  harness.events = {};
  harness.Run(options);
  EXPECT_EQ(harness.events.started, 0) << "a finished search repeats nothing";
}

TEST(Driver, CancelKillsTheTrialWithoutBlamingTheCandidate) {
  const std::string path = ScratchPath("cancel.db");
  Harness harness;
  bool cancel = false;
  struct CancellingEvents : SearchEvents {
    explicit CancellingEvents(bool& flag) : flag_(flag) {}
    void OnVisitStart(const CandidateRecord&, const RaceProgress&) override { flag_ = true; }
    StopRequest stop_requested() override {
      return flag_ ? StopRequest::kCancel : StopRequest::kNone;
    }
    bool& flag_;
  } events(cancel);
  const SearchResult result =
      RunSearch(TinySearch(path), harness.predictor, harness.runner, events);
  EXPECT_TRUE(result.partial);
  EXPECT_FALSE(result.recommendation.measured);
  EXPECT_TRUE(harness.runner.runs.empty());

  TrainingSearch options = TinySearch(path);
  options.study.resume = true;
  EXPECT_FALSE(harness.Run(options).partial);
  EXPECT_GE(harness.runner.runs.size(), 3u);
}

TEST(Driver, ABudgetEndsTheSearchWithAValidResult) {
  Harness harness;
  TrainingSearch options = TinySearch(ScratchPath("budget.db"));
  options.budget_s = 1e-9;
  const SearchResult result = harness.Run(options);
  EXPECT_TRUE(result.partial);
  EXPECT_NE(result.partial_reason.find("budget"), std::string::npos);
  EXPECT_FALSE(result.recommendation.measured);
}

TEST(Driver, VisitsThatAreUsedUpEndTheSearchUntilThereMayBeMore) {
  const std::string path = ScratchPath("visits.db");
  Harness harness;
  TrainingSearch options = TinySearch(path);
  options.most_visits = 2;
  const SearchResult result = harness.Run(options);
  EXPECT_TRUE(result.partial);
  EXPECT_EQ(result.partial_reason, "the 2 visits allowed were used up");
  EXPECT_EQ(harness.runner.runs.size(), 2u);
  EXPECT_TRUE(result.recommendation.measured);

  options.study.resume = true;
  EXPECT_TRUE(harness.Run(options).partial);
  EXPECT_EQ(harness.runner.runs.size(), 2u) << "those of an earlier command count";
  options.most_visits = 100;
  EXPECT_FALSE(harness.Run(options).partial);
  EXPECT_GE(harness.runner.runs.size(), 3u);
}

TEST(Driver, GpuMinutesThatAreUsedUpEndTheSearch) {
  Harness harness;
  TrainingSearch options = TinySearch(ScratchPath("gpu_minutes.db"));
  options.gpu_minutes = 1e-12;  // less than any visit takes
  const SearchResult result = harness.Run(options);
  EXPECT_TRUE(result.partial);
  EXPECT_NE(result.partial_reason.find("GPU minutes"), std::string::npos);
  EXPECT_EQ(harness.runner.runs.size(), 1u);
  EXPECT_TRUE(result.recommendation.measured);

  options.study.resume = true;
  options.gpu_minutes = 1e6;
  EXPECT_FALSE(harness.Run(options).partial);
}

TEST(Driver, ResumeMayProveMore) {
  const std::string path = ScratchPath("more.db");
  Harness harness;
  harness.Run(TinySearch(path));
  const auto before = harness.runner.runs;
  TrainingSearch options = TinySearch(path);
  options.study.resume = true;
  options.race.prove_count = static_cast<int64_t>(before.size()) + 2;
  harness.Run(options);
  EXPECT_EQ(harness.runner.runs.size(), before.size() + 2);
}

TEST(Driver, NarrowingsThatLeaveNothingSayWhatThereIs) {
  Harness harness;
  TrainingSearch options = TinySearch(ScratchPath("narrow.db"));
  options.problem.narrowings = {{.key = "zero", .forbidden = false, .values = {"1"}},
                                {.key = "tp", .forbidden = false, .values = {"3"}}};
  try {
    harness.Run(options);
    FAIL() << "found something";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "no candidate has tp=3; its values here: 1, 2, 4");
  }
}

TEST(Driver, AnotherObjectiveIsAnotherStudy) {
  const std::string path = ScratchPath("objective.db");
  Harness harness;
  harness.Run(TinySearch(path));
  TrainingSearch options = TinySearch(path);
  options.study.resume = true;
  options.race.objective = Objective::kMemory;
  EXPECT_THROW(harness.Run(options), UsageError);
}

TEST(Driver, RoundsThatDoNotSufficeAreAPartialResult) {
  Harness harness;
  harness.runner.noise = 0.3;
  TrainingSearch options = TinySearch(ScratchPath("noisy.db"));
  options.race.most_rounds = 2;
  const SearchResult result = harness.Run(options);
  EXPECT_TRUE(result.partial);
  EXPECT_EQ(result.race.end, RaceEnd::kRounds);
  EXPECT_NE(result.partial_reason.find("2 rounds were not enough"), std::string::npos)
      << result.partial_reason;
  EXPECT_TRUE(result.recommendation.measured);
  EXPECT_EQ(result.rounds.size(), 2u);
}

TEST(Driver, WorkersOfThoseThatLeftAreReleased) {
  const std::vector<std::string> order = PredictedOrder();
  Harness harness;
  harness.runner.step_s = 1;              // a tie of all but one takes some rounds
  harness.runner.slow_layout = order[1];  // which leaves after the first
  const SearchResult result = harness.Run(TinySearch(ScratchPath("release.db")));
  ASSERT_GT(result.rounds.size(), 1u);
  EXPECT_TRUE(harness.runner.released.contains(order[1]));
  EXPECT_FALSE(harness.runner.released.contains(result.recommended().layout));
}

TEST(Driver, AVisitWithASlowRankIsNamedAndRepeated) {
  FakePredictor predictor;
  FakeRunner sound;
  SearchEvents events;
  const SearchResult expected =
      RunSearch(TinySearch(ScratchPath("sound.db")), predictor, sound, events);
  const std::string best = expected.recommended_candidate().key;

  FakeRunner runner;
  runner.stragglers = {{best, "n2"}};
  const SearchResult result =
      RunSearch(TinySearch(ScratchPath("straggler.db")), predictor, runner, events);
  EXPECT_EQ(result.recommended_candidate().key, best);
  EXPECT_GT(runner.runs.at(best), 1);
  EXPECT_NEAR(result.recommended().figure.tokens_per_s, expected.recommended().figure.tokens_per_s,
              0.01 * expected.recommended().figure.tokens_per_s);
  EXPECT_EQ(runner.slow_hosts, (std::map<std::string, int64_t>{{"n2", 1}}));
  const std::string note = StragglerNote(result);
  EXPECT_TRUE(note.starts_with("1 of ") && note.ends_with("count little: n2")) << note;
  EXPECT_EQ(StragglerNote(expected), "");
}

TEST(Driver, AStudyAloneGivesTheSameResult) {
  const std::string path = ScratchPath("alone.db");
  Harness harness;
  const SearchResult result = harness.Run(TinySearch(path));
  const SearchResult again = ResultFromStudy(*Study::OpenExisting(path));
  EXPECT_EQ(again.recommended().layout, result.recommended().layout);
  EXPECT_EQ(again.ranking.size(), result.ranking.size());
  EXPECT_EQ(again.space.pruned, result.space.pruned);
}

}  // namespace
}  // namespace trimtab
