#include "search/race/race.h"
#include "search/race/race_round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/search/fake_machine.h"

namespace trimtab {
namespace {

constexpr char kRecorded[] = "testdata/speed_traces/shared_host.csv";
constexpr uint64_t kUntunedSeed = 20000;  // nothing was tuned on those from here on

FakeMachineOptions Options(const std::string& kind, uint64_t seed) {
  if (kind != "recorded") return MakeMachine(kind, seed);
  FakeMachineOptions options = MakeMachine("quiet", seed);
  options.trace = ReadSpeedTrace(kRecorded);
  return options;
}

/// What many races on machines of known speed came to.
struct Tally {
  int64_t searches = 0;
  int64_t within = 0;  // recommendations within the indifference of the true best
  int64_t intervals = 0;
  int64_t intervals_right = 0;
  double seconds = 0;
  double single_seconds = 0;

  void Add(const FakeMachine::Outcome& outcome, const RaceRules& rules) {
    ++searches;
    within += outcome.regret <= rules.indifference ? 1 : 0;
    intervals += outcome.intervals;
    intervals_right += outcome.intervals_right;
    seconds += outcome.seconds;
    single_seconds += outcome.single_seconds;
  }
};

TEST(Race, RecommendsTheTrueBestHoweverTheMachineWanders) {
  std::vector<std::string> kinds = kTraceKinds;
  kinds.push_back("recorded");
  constexpr int kSearchesOfAKind = 30;
  const RaceRules rules;
  Tally all;
  for (const std::string& kind : kinds) {
    Tally tally;
    for (int i = 0; i < kSearchesOfAKind; ++i) {
      const FakeMachine::Outcome outcome =
          FakeMachine(Options(kind, kUntunedSeed + static_cast<uint64_t>(i))).Run(rules);
      tally.Add(outcome, rules);
      all.Add(outcome, rules);
    }
    RecordProperty(kind + "_within", static_cast<int>(tally.within));
    RecordProperty(kind + "_intervals_percent",
                   static_cast<int>(100 * tally.intervals_right / tally.intervals));
  }
  EXPECT_GE(all.searches, 200);
  EXPECT_GE(static_cast<double>(all.within), 0.95 * static_cast<double>(all.searches));
  EXPECT_GE(static_cast<double>(all.intervals_right), 0.90 * static_cast<double>(all.intervals));
}

TEST(Race, FirstVisitsTheBestOfEachModeThatMayWin) {
  FakeMachine machine(Options("quiet", 1));
  std::vector<CandidateRecord>& candidates = machine.candidates();
  const auto predict = [&](const Mode& mode, double seconds, double factor) {
    for (CandidateRecord& candidate : candidates) {
      if (ModeOf(candidate.run) != mode) continue;
      Prediction& prediction = *candidate.closed_form;
      prediction.step_time_s = seconds + 1e-4 * static_cast<double>(candidate.id);
      prediction.step_time_low_s = prediction.step_time_s / factor;
      prediction.step_time_high_s = prediction.step_time_s * factor;
      prediction.tokens_per_s = 1 / prediction.step_time_s;
    }
  };
  const Mode one = ModeOf(candidates.front().run);
  const Mode four = {.ranks = 4, .threads = 1};
  ASSERT_NE(one, four);
  const auto modes_of_the_first_round = [&] {
    const RaceRules rules;
    std::map<Mode, int> modes;
    for (const size_t index :
         NextStep(rules, JudgeRace(rules, candidates, {}), candidates, {}).begin_round) {
      ++modes[ModeOf(candidates[index].run)];
    }
    return modes;
  };
  for (const CandidateRecord& candidate : candidates) predict(ModeOf(candidate.run), 2, 1.01);
  predict(four, 1, 1.01);
  EXPECT_EQ(modes_of_the_first_round(), (std::map<Mode, int>{{four, 4}}));
  // Its predictions are so unsure that it may be the fastest.
  predict(one, 1.2, 1.4);
  EXPECT_EQ(modes_of_the_first_round(), (std::map<Mode, int>{{one, 1}, {four, 3}}));
}

// One visit shows that a mode is faster than predicted: then others of it are next, however many of
// another mode were predicted to be faster.
TEST(Race, VisitsMoreOfAModeThatIsFasterThanPredicted) {
  FakeMachineOptions options = Options("quiet", 1);
  options.rare_layouts = 4;
  FakeMachine machine(options);
  const auto is_slow_by_prediction = [](const CandidateRecord& candidate) {
    return candidate.run.layout.world_size() == 2;
  };
  for (size_t i = 0; i < machine.candidates().size(); ++i) {
    CandidateRecord& candidate = machine.candidates()[i];
    const bool slow = is_slow_by_prediction(candidate);
    machine.SetTrueStep(i, slow ? 0.4 : 0.5);
    Prediction& prediction = *candidate.closed_form;
    prediction.step_time_s = (slow ? 0.6 : 0.5) + 1e-4 * static_cast<double>(candidate.id);
    prediction.step_time_low_s = prediction.step_time_s / 1.4;
    prediction.step_time_high_s = prediction.step_time_s * 1.4;
    prediction.tokens_per_s = 1 / prediction.step_time_s;
  }
  machine.Run({}, /*most_visits=*/20);
  int64_t visited = 0;
  for (const CandidateRecord& candidate : machine.candidates()) {
    visited += is_slow_by_prediction(candidate) && !candidate.visits.empty() ? 1 : 0;
  }
  EXPECT_GE(visited, 4);
}

TEST(Race, CostsLittleOnAQuietMachine) {
  Tally tally;
  for (uint64_t i = 0; i < 60; ++i) {
    tally.Add(FakeMachine(Options("quiet", kUntunedSeed + i)).Run({}), {});
  }
  EXPECT_LE(tally.seconds, 1.3 * tally.single_seconds);
}

TEST(Race, EndsOnceLittleIsExpectedToBeLostAndLittleIs) {
  const RaceRules rules;
  int64_t small = 0;
  double expected = 0;
  double lost = 0;
  for (const char* kind : {"walk", "mixed"}) {
    for (uint64_t i = 0; i < 30; ++i) {
      const FakeMachine::Outcome outcome = FakeMachine(Options(kind, kUntunedSeed + i)).Run(rules);
      if (outcome.race.end != RaceEnd::kSmallLoss) continue;
      const Race& race = outcome.race;
      ASSERT_TRUE(race.expected_loss.has_value());
      EXPECT_LT(*race.expected_loss, 0.2 * rules.indifference + 1e-5);
      EXPECT_GT(race.belief->Doubt(*race.contestant[*race.best], std::log1p(rules.indifference)),
                1 - rules.confidence)
          << "else it were clear";
      ++small;
      expected += *outcome.race.expected_loss;
      lost += outcome.regret;
    }
  }
  ASSERT_GE(small, 15);
  RecordProperty("races", static_cast<int>(small));
  RecordProperty("lost_ppm", static_cast<int>(1e6 * lost / static_cast<double>(small)));
  EXPECT_LE(lost, 1.2 * expected);
}

TEST(Race, ATrueTieIsCalledATie) {
  int64_t ties = 0;
  int64_t told_apart = 0;
  constexpr int kRaces = 40;
  for (uint64_t seed = 1; seed <= kRaces; ++seed) {
    const bool quiet = seed % 2 == 0;
    FakeMachine machine(Options(quiet ? "quiet" : "walk", seed));
    // The two that are predicted best are equally fast, and faster than all others.
    const std::vector<size_t> order =
        RankByPrediction(Objective::kThroughput, machine.candidates());
    machine.SetTrueStep(order[0], 0.4);
    machine.SetTrueStep(order[1], 0.4);
    const FakeMachine::Outcome outcome = machine.Run({});
    const size_t best = *outcome.race.best;
    ASSERT_TRUE(best == order[0] || best == order[1]);
    const Standing other = outcome.race.standing[best == order[0] ? order[1] : order[0]];
    ties += quiet && outcome.race.end == RaceEnd::kTie && other == Standing::kTied ? 1 : 0;
    told_apart += other == Standing::kBehind ? 1 : 0;
  }
  EXPECT_GE(ties, 0.9 * kRaces / 2) << "of those on a quiet machine";
  EXPECT_LE(told_apart, 0.1 * kRaces) << "whatever the machine does";
}

TEST(Race, OfThoseThatTieTheLeanestIsRecommended) {
  int64_t leanest = 0;
  constexpr int kRaces = 20;
  for (uint64_t seed = 1; seed <= kRaces; ++seed) {
    FakeMachineOptions options = Options("quiet", seed);
    options.step_noise = 0.0005;
    options.probe_noise = 0.0005;
    FakeMachine machine(options);
    const std::vector<size_t> order =
        RankByPrediction(Objective::kThroughput, machine.candidates());
    machine.SetTrueStep(order[0], 0.4);
    machine.SetTrueStep(order[1], 0.4);
    const size_t lean = std::min(order[0], order[1]);  // memory grows with the number
    leanest += machine.Run({}).race.best == lean ? 1 : 0;
  }
  EXPECT_GE(leanest, 0.9 * kRaces);
}

TEST(Race, TheSameVisitsGiveTheSameNextStep) {
  const FakeMachine::Outcome first = FakeMachine(Options("mixed", 7)).Run({});
  const FakeMachine::Outcome again = FakeMachine(Options("mixed", 7)).Run({});
  EXPECT_EQ(first.visits, again.visits);
  EXPECT_EQ(first.race.best, again.race.best);
  EXPECT_EQ(first.seconds, again.seconds);
}

TEST(Race, WithMemoryAsTheObjectiveEveryFinalistIsVisitedOnce) {
  const FakeMachine::Outcome outcome =
      FakeMachine(Options("walk", 3)).Run({.objective = Objective::kMemory});
  EXPECT_EQ(outcome.rounds, 1);
  EXPECT_EQ(outcome.visits, 4);
  EXPECT_EQ(outcome.race.best, 0u);  // memory grows with the number
}

TEST(Race, NamesAreThoseOfTheReport) {
  EXPECT_EQ(Name(Standing::kPredicted), "predicted");
  EXPECT_EQ(Name(Standing::kFailed), "failed");
  EXPECT_EQ(Name(Standing::kRacing), "racing");
  EXPECT_EQ(Name(Standing::kBehind), "behind");
  EXPECT_EQ(Name(Standing::kTied), "tied");
  EXPECT_EQ(Name(Standing::kBest), "best");
  EXPECT_EQ(Name(RaceEnd::kNotRun), "not_run");
  EXPECT_EQ(Name(RaceEnd::kSeparated), "separated");
  EXPECT_EQ(Name(RaceEnd::kTie), "tie");
  EXPECT_EQ(Name(RaceEnd::kSmallLoss), "small_loss");
  EXPECT_EQ(Name(RaceEnd::kRounds), "rounds");
}

}  // namespace
}  // namespace trimtab
