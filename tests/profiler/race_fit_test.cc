#include "profiler/race_fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "profiler/two_way_fit.h"

namespace trimtab {
namespace {

const Mode kTwo = {.ranks = 2, .threads = 1};
const Mode kFour = {.ranks = 4, .threads = 1};

/// A visit at which the machine took `slowness` times as long, and the probe said so.
RaceVisit VisitAt(size_t entrant, int64_t round, double step_s, double slowness, Mode mode = kTwo,
                  double probe_s = 0.01) {
  RaceVisit visit = {.entrant = entrant, .round = round, .mode = mode};
  visit.blocks.assign(3, {.step_s = step_s * slowness, .probe_s = probe_s * slowness});
  return visit;
}

double Ratio(const RaceFit& fit, size_t entrant, size_t other) {
  return std::exp(fit.StepTime(entrant).log - fit.StepTime(other).log);
}

TEST(RaceFit, TakesTheMachinesSpeedOff) {
  // Entrant 1 is 10 % slower, and always met the machine at its fastest.
  std::vector<RaceVisit> visits;
  for (int64_t round = 1; round <= 4; ++round) {
    visits.push_back(VisitAt(0, round, 1.0, 2.0 + 0.1 * static_cast<double>(round)));
    visits.push_back(VisitAt(1, round, 1.1, 1.0 + 0.1 * static_cast<double>(round)));
  }
  const RaceFit fit(visits, 2, {{kTwo, {.probe_s = 0.01, .spread = 0.01}}}, 0.95);
  EXPECT_NEAR(Ratio(fit, 1, 0), 1.1, 1e-3);
  EXPECT_NEAR(std::exp(fit.StepTime(0).log), 1.0, 1e-3) << "at the calibrated speed";
  EXPECT_TRUE(fit.calibrated());
  EXPECT_NEAR(fit.speed().low, 1 / 2.4, 1e-6);
  EXPECT_NEAR(fit.speed().high, 1 / 1.1, 1e-6);
  const double variance = fit.Covariance(0, 0) + fit.Covariance(1, 1) - 2 * fit.Covariance(0, 1);
  EXPECT_GT(std::log(1.1), fit.normal_quantile() * std::sqrt(variance)) << "surely slower";
}

TEST(RaceFit, GoesByBlocksThatNothingDisturbed) {
  // Others slow the steps down by more than the probe, and more so those of entrant 0.
  std::vector<RaceVisit> visits;
  for (int64_t round = 1; round <= 4; ++round) {
    for (const size_t entrant : {0u, 1u}) {
      RaceVisit& visit = visits.emplace_back(VisitAt(entrant, round, 1.0 + 0.1 * entrant, 1));
      StepBlock& disturbed = visit.blocks.front();
      disturbed.taken = 0.25;
      disturbed.step_s *= entrant == 0 ? 2 : 1.5;
    }
  }
  const RaceFit fit(visits, 2, {{kTwo, {.probe_s = 0.01, .spread = 0.01}}}, 0.95);
  EXPECT_NEAR(Ratio(fit, 1, 0), 1.1, 1e-3);
}

TEST(RaceFit, AVisitThatWaitedForASlowRankCountsLittle) {
  std::vector<RaceVisit> visits;
  for (int64_t round = 1; round <= 2; ++round) {
    visits.push_back(VisitAt(0, round, 1.0, 1));
    visits.push_back(VisitAt(1, round, 1.1, 1));
  }
  RaceVisit& slow = visits[2];
  for (StepBlock& block : slow.blocks) block.step_s *= 3;
  const std::map<Mode, ProbeReference> references = {{kTwo, {.probe_s = 0.01, .spread = 0.01}}};
  EXPECT_GT(std::abs(std::log(Ratio(RaceFit(visits, 2, references, 0.95), 1, 0) / 1.1)), 0.2);
  slow.straggling = 3;
  EXPECT_NEAR(Ratio(RaceFit(visits, 2, references, 0.95), 1, 0), 1.1, 1e-2);
}

TEST(RaceFit, AVisitThatWasDisturbedAllThroughCountsLittle) {
  std::vector<RaceVisit> visits;
  for (int64_t round = 1; round <= 4; ++round) {
    for (const size_t entrant : {0u, 1u}) {
      RaceVisit& visit = visits.emplace_back(VisitAt(entrant, round, 1.0 + 0.1 * entrant, 1));
      if (round > 2) continue;
      for (StepBlock& block : visit.blocks) {
        block.taken = 0.25;
        block.step_s *= entrant == 0 ? 1.3 : 1.1;
      }
    }
  }
  const std::map<Mode, ProbeReference> references = {{kTwo, {.probe_s = 0.01, .spread = 0.01}}};
  EXPECT_NEAR(Ratio(RaceFit(visits, 2, references, 0.95), 1, 0), 1.1, 5e-3);
  // Where there are no others they still count.
  visits.resize(4);
  EXPECT_NEAR(Ratio(RaceFit(visits, 2, references, 0.95), 1, 0), 1.1 / 1.3 * 1.1, 5e-3);
}

TEST(RaceFit, WithoutACalibrationSpeedsAreAgainstTheRaceItself) {
  std::vector<RaceVisit> visits;
  for (int64_t round = 1; round <= 4; ++round) {
    const double slowness = round % 2 == 0 ? 1.0 : 1.5;
    visits.push_back(VisitAt(0, round, 1.0, slowness));
    visits.push_back(VisitAt(1, round, 1.2, slowness, kFour, 0.03));
  }
  const RaceFit fit(visits, 2, {}, 0.95);
  EXPECT_FALSE(fit.calibrated());
  EXPECT_NEAR(Ratio(fit, 1, 0), 1.2, 2e-2);
}

TEST(RaceFit, WithoutAProbeTheRoundsStillPair) {
  std::vector<RaceVisit> visits;
  for (int64_t round = 1; round <= 5; ++round) {
    const double slowness = 1.0 + 0.2 * static_cast<double>(round);
    visits.push_back(VisitAt(0, round, 1.0, slowness, kTwo, 0));
    visits.push_back(VisitAt(1, round, 1.1, slowness, kTwo, 0));
  }
  const RaceFit fit(visits, 2, {}, 0.95);
  EXPECT_FALSE(fit.probed());
  EXPECT_NEAR(Ratio(fit, 1, 0), 1.1, 1e-3);
}

TEST(RaceFit, NoticesAThrottledMode) {
  std::vector<RaceVisit> visits;
  for (int64_t round = 1; round <= 5; ++round) {
    visits.push_back(VisitAt(0, round, 1.0, 1.0));
    visits.push_back(VisitAt(1, round, 1.0, 1.0));
    visits.push_back(VisitAt(2, round, 0.9, 2.0, kFour, 0.02));  // the best, at half its speed
  }
  const std::map<Mode, ProbeReference> references = {{kTwo, {.probe_s = 0.01, .spread = 0.01}},
                                                     {kFour, {.probe_s = 0.02, .spread = 0.01}}};
  const RaceFit fit(visits, 3, references, 0.95);
  EXPECT_FALSE(fit.throttled().empty());
  EXPECT_NEAR(Ratio(fit, 2, 0), 0.9, 0.02);
}

TEST(RaceFit, SaysWhenStepsDoNotFollowTheProbe) {
  std::vector<RaceVisit> visits;
  for (int64_t round = 1; round <= 8; ++round) {
    const double slowness = round % 2 == 0 ? 1.0 : 1.6;
    for (const size_t entrant : {size_t{0}, size_t{1}}) {
      RaceVisit visit = VisitAt(entrant, round, entrant == 0 ? 1.0 : 1.05, 1.0);
      for (StepBlock& block : visit.blocks) block.probe_s *= slowness;  // and the steps do not care
      visits.push_back(visit);
    }
  }
  const RaceFit fit(visits, 2, {{kTwo, {.probe_s = 0.01, .spread = 0.01}}}, 0.95);
  EXPECT_FALSE(fit.stands_for_steps());
  EXPECT_LT(fit.exponent(), 0.2);
  EXPECT_NEAR(Ratio(fit, 1, 0), 1.05, 1e-3);
}

TEST(TwoWayFit, RecoversRowsAndColumnsWithHoles) {
  const std::vector<double> rows = {0.0, 0.3, -0.2};
  const std::vector<double> columns = {0.05, -0.08, 0.02, 0.01};
  std::vector<TableCell> cells;
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t column = 0; column < columns.size(); ++column) {
      if (row == column) continue;
      cells.push_back({row, column, rows[row] + columns[column]});
    }
  }
  const TwoWayFit fit = FitTwoWay(cells, rows.size(), columns.size(), {});
  EXPECT_NEAR(fit.rows[1] - fit.rows[0], 0.3, 5e-3);
  EXPECT_NEAR(fit.rows[2] - fit.rows[0], -0.2, 5e-3);
}

TEST(TwoWayFit, OneWildCellMovesLittle) {
  std::vector<TableCell> cells;
  for (size_t column = 0; column < 6; ++column) {
    cells.push_back({0, column, 0.0});
    cells.push_back({1, column, column == 3 ? 1.5 : 0.1});
  }
  const TwoWayFit fit = FitTwoWay(cells, 2, 6, {});
  EXPECT_NEAR(fit.rows[1] - fit.rows[0], 0.1, 0.02);
}

TEST(TwoWayFit, RowsWithoutACellStayWherePriorKnowledgePutsThem) {
  TwoWayOptions options;
  options.row_variance = {1e-4, 1e-4};
  const TwoWayFit fit = FitTwoWay({{0, 0, 0.0}}, 2, 1, options);
  EXPECT_NEAR(fit.rows[1], 0, 1e-9);
  EXPECT_NEAR(fit.covariance[1][1], 1e-4, 1e-9);
}

}  // namespace
}  // namespace trimtab
