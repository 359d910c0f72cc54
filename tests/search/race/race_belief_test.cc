#include "search/race/race_belief.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace trimtab {
namespace {

constexpr double kMargin = 0.01;

/// Visits to entrants 0, 1, ... that scatter by `scatter`: `visits` each, in as many rounds.
RaceFit FitOf(const std::vector<double>& step_s, int visits, double scatter) {
  std::vector<RaceVisit> all;
  for (int round = 0; round < visits; ++round) {
    for (size_t i = 0; i < step_s.size(); ++i) {
      // Up and down by turns, so that no mean is off.
      const double off = (round + static_cast<int>(i)) % 2 == 0 ? scatter : -scatter;
      RaceVisit& visit = all.emplace_back();
      visit.entrant = i;
      visit.round = round + 1;
      visit.mode = {.ranks = 1, .threads = 1};
      visit.blocks.assign(2, {.step_s = step_s[i] * std::exp(off), .probe_s = 0.01});
    }
  }
  return RaceFit(all, step_s.size(), {}, 0.95);
}

TEST(RaceBelief, WithoutVisitsItIsThePredictions) {
  const RaceBelief belief({{.predicted = 1.0, .group_error = 0.04, .group = 0},
                           {.predicted = 1.2, .group_error = 0.04, .group = 0},
                           {.predicted = 1.2, .group_error = 0.04, .group = 1}},
                          FitOf({}, 0, 0));
  EXPECT_DOUBLE_EQ(belief.mean(1), 1.2);
  EXPECT_NEAR(belief.Deviation(1, 0), std::sqrt(2) * 0.03, 1e-12) << "what they share cancels";
  EXPECT_NEAR(belief.Deviation(2, 0), std::sqrt(2) * 0.05, 1e-12);
  EXPECT_NEAR(belief.Chance(0, 1, 0.2), 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(belief.Doubt(0, kMargin),
                   belief.Chance(1, 0, kMargin) + belief.Chance(2, 0, kMargin));
}

TEST(RaceBelief, WhatOnesPredictionIsOffByMovesTheOthersOfItsGroup) {
  // Both visited ones take 20 % longer than predicted.
  const RaceFit fit = FitOf({1.2, 1.2}, 3, 0.001);
  const double measured = std::log(1.2);
  const RaceBelief belief(
      {{.predicted = 0, .group_error = 0.2, .group = 0, .measured = measured, .entrant = 0},
       {.predicted = 0, .group_error = 0.2, .group = 0, .measured = measured, .entrant = 1},
       {.predicted = 0, .group_error = 0.2, .group = 0},
       {.predicted = 0, .group_error = 0.2, .group = 1}},
      fit);
  EXPECT_NEAR(belief.mean(2), measured, 0.01);
  EXPECT_DOUBLE_EQ(belief.mean(3), 0);
  EXPECT_LT(belief.Deviation(2, 0), 0.05);
  EXPECT_GT(belief.Deviation(3, 0), 0.2);
}

TEST(RaceBelief, WhatOnesPredictionIsOffByMovesThoseWithTheSameValueOfADimension) {
  // Those with value 0 of the second dimension take 10 % longer than predicted, with 1 as long as
  // predicted; the first dimension has nothing to do with it.
  std::vector<double> step_s;
  std::vector<Contestant> contestants;
  for (size_t i = 0; i < 12; ++i) {
    const size_t value = i % 2;
    step_s.push_back(value == 0 ? 1.1 : 1.0);
    contestants.push_back({.predicted = 0,
                           .group_error = 0.05,
                           .values = {i % 3, value},
                           .measured = std::log(step_s.back()),
                           .entrant = i});
  }
  for (size_t value = 0; value < 3; ++value) {  // 2: of none that was measured
    contestants.push_back({.predicted = 0, .group_error = 0.05, .values = {0, value}});
  }
  const RaceBelief belief(contestants, FitOf(step_s, 3, 0.002));
  EXPECT_NEAR(belief.mean(12) - belief.mean(13), std::log(1.1), 0.02);
  EXPECT_GT(belief.mean(12), belief.mean(14));
  EXPECT_LT(belief.mean(13), belief.mean(14));
  EXPECT_LT(belief.Deviation(12, 0), belief.Deviation(14, 0)) << "of that value nothing is known";
}

TEST(RaceBelief, RivalsAreThoseThatMayBeBetter) {
  const RaceBelief belief({{.predicted = 1.0, .group_error = 0.04, .group = 0},
                           {.predicted = 1.3, .group_error = 0.04, .group = 0},
                           {.predicted = 1.02, .group_error = 0.04, .group = 0},
                           {.predicted = 1.2, .group_error = 0.4, .group = 1}},
                          FitOf({}, 0, 0));
  EXPECT_EQ(belief.Rivals(0, 2), (std::vector<size_t>{3, 2})) << "unsure ones may win by more";
  EXPECT_EQ(belief.Rivals(1, 9), (std::vector<size_t>{0, 2, 3}));
}

TEST(RaceBelief, SteadyVisitsDecideAndNoisyOnesMovePredictions) {
  for (const double scatter : {0.002, 0.1}) {
    const RaceFit fit = FitOf({1.0, 1.1}, 4, scatter);
    const RaceBelief belief(
        {{.predicted = 0, .group_error = 0.1, .measured = fit.StepTime(0).log, .entrant = 0},
         {.predicted = 0, .group_error = 0.1, .measured = fit.StepTime(1).log, .entrant = 1}},
        fit);
    const double ratio = belief.mean(1) - belief.mean(0);
    if (scatter < 0.01) {
      EXPECT_NEAR(ratio, std::log(1.1), 0.003);
    } else {
      EXPECT_GT(ratio, 0);
      EXPECT_LT(ratio, 0.6 * std::log(1.1));
    }
  }
}

TEST(RaceBelief, ALossIsThatOfTheGreatestOfAll) {
  // The mean of the greatest of n that are normal alike, in standard deviations.
  constexpr double kGreatestOf[] = {0, 0, 0.5642, 0.8463, 1.0294, 1.1630};
  for (size_t n = 2; n <= 5; ++n) {
    std::vector<Contestant> contestants;
    for (size_t i = 0; i < n; ++i) {
      contestants.push_back({.predicted = 1.0, .group_error = 0.03, .group = i});
    }
    const RaceBelief belief(contestants, FitOf({}, 0, 0));
    const double deviation = std::hypot(0.03, 0.03);
    EXPECT_NEAR(belief.Loss(0), deviation * kGreatestOf[n], deviation * 0.01) << n;
  }
  const RaceBelief clear({{.predicted = 1.0}, {.predicted = 1.5}}, FitOf({}, 0, 0));
  EXPECT_EQ(clear.Loss(0), 0);
  EXPECT_NEAR(clear.Loss(1), 0.5, 1e-9);
}

TEST(RaceBelief, WhatPredictionsShareIsNoLoss) {
  const RaceBelief belief(
      {{.predicted = 1.0, .group_error = 0.4}, {.predicted = 1.0, .group_error = 0.4}},
      FitOf({}, 0, 0));
  EXPECT_NEAR(belief.Loss(0), std::sqrt(2) * 0.03 / std::sqrt(2 * std::numbers::pi), 1e-9);
}

TEST(RaceBelief, SaysBeforehandWhatAVisitLeavesToLose) {
  const RaceFit fit = FitOf({1.0, 1.005}, 2, 0.01);
  RaceBelief belief(
      {{.predicted = 0, .group_error = 0.1, .measured = fit.StepTime(0).log, .entrant = 0},
       {.predicted = 0, .group_error = 0.1, .measured = fit.StepTime(1).log, .entrant = 1},
       {.predicted = 0.02, .group_error = 0.1}},
      fit);
  belief.BeginRound();
  double loss = belief.Loss(0);
  for (const size_t visited : {size_t{2}, size_t{1}, size_t{0}}) {
    const double after = belief.LossesAfter({visited}, 0).front();
    EXPECT_LT(after, loss);
    const double mean = belief.mean(visited);
    belief.Visit(visited);
    EXPECT_NEAR(belief.Loss(0), after, 1e-12);
    EXPECT_EQ(belief.mean(visited), mean);
    loss = after;
  }
}

}  // namespace
}  // namespace trimtab
