#include "profiler/drift.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>

namespace trimtab {
namespace {

/// Seconds of a probe round and of the cells of one table in one mode, at full speed.
struct TrueMode {
  double probe_s = 0;
  std::vector<double> cells;
};

const std::vector<TrueMode> kModes = {{2e-3, {1e-3, 4e-4, 3e-2, 5e-3}},
                                      {3e-3, {1.8e-3, 7e-4, 5e-2, 9e-3}},
                                      {6e-3, {4e-3, 1.5e-3, 1.1e-1, 2e-2}}};

/// What calibration would read on a machine of `speed(visit)`, each cell a piece of its own.
struct Readings {
  std::vector<std::vector<Pass>> tables;          // [mode][pass]
  std::vector<std::vector<ProbeReading>> probes;  // [pass][mode]
};

/// A mode's turn in a pass.
struct Turn {
  int pass = 0;
  size_t mode = 0;
  size_t turn = 0;  // 0 = the first mode of this pass
};

struct Noise {
  double probe = 0;    // sigma of the log of one probe reading
  double seconds = 0;  // likewise, of one timing
  double follows = 1;  // how far timings go by the machine's speed
};

Readings Simulate(int passes, const std::function<double(const Turn&)>& speed, const Noise& noise,
                  unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Readings readings;
  readings.tables.resize(kModes.size());
  for (int pass = 0; pass < passes; ++pass) {
    std::vector<ProbeReading>& probes = readings.probes.emplace_back();
    std::vector<size_t> turns = {0, 1, 2};
    std::shuffle(turns.begin(), turns.end(), random);
    for (size_t mode = 0; mode < kModes.size(); ++mode) {
      const double slower = 1 / speed({pass, mode, turns[mode]});
      Pass& read = readings.tables[mode].emplace_back();
      double log_probes = 0;
      for (const double cell : kModes[mode].cells) {
        const double seconds =
            cell * std::pow(slower, noise.follows) * std::exp(noise.seconds * normal(random));
        const double probe_s =
            kModes[mode].probe_s * slower * std::exp(noise.probe * normal(random));
        read.push_back({seconds, probe_s, static_cast<int>(read.size())});
        log_probes += std::log(probe_s) / static_cast<double>(kModes[mode].cells.size());
      }
      probes.push_back({.seconds = std::exp(log_probes)});
    }
  }
  return readings;
}

struct Ratio {
  double error = 0;   // relative, of a mode's table against another's
  double spread = 0;  // that is stated for it
};

/// The worst ratio between modes that comes out of `readings`.
Ratio WorstRatio(const Readings& readings) {
  const std::vector<ProbeReference> probes = ReferenceProbes(readings.probes);
  std::vector<double> off;  // log of what was found / what is true, of each mode
  Ratio worst;
  for (size_t mode = 0; mode < kModes.size(); ++mode) {
    const CombinedTable table =
        CombinePasses(readings.tables[mode], readings.tables[mode], probes[mode].probe_s);
    double mean = 0;
    for (size_t cell = 0; cell < table.seconds.size(); ++cell) {
      mean += std::log(table.seconds[cell] / kModes[mode].cells[cell]) /
              static_cast<double>(table.seconds.size());
    }
    off.push_back(mean);
    worst.spread = std::max(worst.spread, std::hypot(table.spread, probes[mode].spread));
  }
  for (const double one : off) {
    for (const double other : off) worst.error = std::max(worst.error, std::abs(one - other));
  }
  return worst;
}

/// Undisturbed readings of the probe, [pass][mode].
std::vector<std::vector<ProbeReading>> ProbesOf(const std::vector<std::vector<double>>& seconds) {
  std::vector<std::vector<ProbeReading>> probes;
  for (const std::vector<double>& pass : seconds) {
    auto& modes = probes.emplace_back();
    for (const double each : pass) modes.push_back({.seconds = each});
  }
  return probes;
}

TEST(StandardErrorOfMedian, IgnoresAFewWildValues) {
  EXPECT_EQ(StandardErrorOfMedian({3}), 0);
  EXPECT_EQ(StandardErrorOfMedian({3, 3, 3, 100}), 0);
  EXPECT_GT(StandardErrorOfMedian({1, 2, 3, 4, 5}), 0);
  EXPECT_DOUBLE_EQ(StandardErrorOfMedian({1, 2, 3, 4, 5}),
                   StandardErrorOfMedian({1, 2, 3, 4, 500}));
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  double sum = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(5);
    for (double& value : values) value = normal(random);
    sum += StandardErrorOfMedian(values);
  }
  EXPECT_NEAR(sum / kTrials, 1.2533 / std::sqrt(5.0), 0.05) << "of normal values of sigma 1";
}

TEST(DriftSlope, FollowsTheProbeAsFarAsItHelps) {
  const auto wander = [](const Turn& at) { return at.pass % 2 == 0 ? 1.0 : 0.5; };
  const auto slope = [&](const Noise& noise) {
    return DriftSlope(Simulate(6, wander, noise, 1).tables[0]);
  };
  EXPECT_NEAR(slope({}), 1, 1e-9);
  EXPECT_NEAR(slope({.follows = 0.5}), 0.5, 1e-9);
  EXPECT_NEAR(slope({.follows = 0}), 0, 1e-9);
  EXPECT_NEAR(slope({.follows = 3}), 1.2, 1e-9) << "no work slows down that much more";
  EXPECT_NEAR(slope({.probe = 0.05, .seconds = 0.05}), 1, 0.15);
}

TEST(DriftSlope, IsSmallWhereTheProbeIsAllNoise) {
  double sum = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto steady = [](const Turn&) { return 1.0; };
    sum += DriftSlope(Simulate(6, steady, {.probe = 0.1, .seconds = 0.02}, seed).tables[0]);
  }
  EXPECT_LT(sum / 20, 0.1);
}

TEST(CombinePasses, OnePassIsTakenAsItIs) {
  const CombinedTable table = CombinePasses({{{2.0, 1e-3, 0}, {3.0, 1e-3, 0}}}, {{}}, 2e-3);
  EXPECT_NEAR(table.seconds[0], 2.0, 1e-12);
  EXPECT_NEAR(table.seconds[1], 3.0, 1e-12);
  EXPECT_EQ(table.spread, 0);
}

TEST(CombinePasses, TakesDriftOutAndLeavesNoSpread) {
  const auto falls = [](const Turn& at) { return 1.0 - 0.1 * at.pass; };
  const Readings readings = Simulate(6, falls, {}, 1);
  const CombinedTable table =
      CombinePasses(readings.tables[1], readings.tables[1], kModes[1].probe_s);
  for (size_t cell = 0; cell < kModes[1].cells.size(); ++cell) {
    EXPECT_NEAR(table.seconds[cell] / kModes[1].cells[cell], 1, 1e-9);
  }
  EXPECT_NEAR(table.spread, 0, 1e-9);
}

TEST(CombinePasses, FewPiecesDoNotHideTheirNoiseInASlope) {
  // Two timings of one cell that a slope of 1 would make agree, though the mode's other work says
  // that the probe has nothing to tell.
  const std::vector<Pass> few = {{{2.0, 1e-3, 0}}, {{2.2, 1.1e-3, 0}}};
  const std::vector<Pass> whole = {{{1.0, 1e-3, 0}}, {{1.0, 1.1e-3, 0}}};
  EXPECT_GT(CombinePasses(few, whole, 1e-3).spread, 0.03);
}

TEST(CombinePasses, LeavesOutWhatOthersDisturbed) {
  // Three passes of five were disturbed by as much as the probe did not see.
  std::vector<Pass> passes;
  for (const double off : {1.0, 1.4, 1.01, 1.5, 1.6}) {
    passes.push_back({{.seconds = 2e-3 * off, .probe_s = 1e-3, .disturbed = off > 1.1}});
  }
  const CombinedTable table = CombinePasses(passes, passes, 1e-3);
  EXPECT_NEAR(table.seconds[0], 2e-3, 2e-5);
  EXPECT_LT(table.spread, 0.02);
}

TEST(CombinePasses, TakesDisturbedReadingsWhereThereAreNoOthers) {
  std::vector<Pass> passes;
  for (const double off : {1.0, 1.1, 1.2}) {
    passes.push_back({{.seconds = 2e-3 * off, .probe_s = 1e-3, .disturbed = off > 1}});
  }
  EXPECT_NEAR(CombinePasses(passes, passes, 1e-3).seconds[0], 2.2e-3, 1e-6);
}

TEST(ReferenceProbes, GoesByPassesThatNothingDisturbed) {
  auto readings = ProbesOf({{1, 2}, {1, 5}, {1, 2.02}, {1.1, 6}, {4, 6}});
  readings[1][0].disturbed = readings[3][1].disturbed = true;
  readings[4][0].disturbed = readings[4][1].disturbed = true;
  const std::vector<ProbeReference> probes = ReferenceProbes(readings);
  EXPECT_NEAR(probes[1].probe_s / probes[0].probe_s, 2.01, 1e-2);
  EXPECT_NEAR(probes[0].probe_s, 1.0, 1e-2);
}

TEST(Append, KeepsPiecesApart) {
  Pass pass = {{1, 1, 0}, {2, 1, 3}};
  Append({{3, 1, 0}, {4, 1, 1}}, pass);
  ASSERT_EQ(pass.size(), 4u);
  EXPECT_EQ(pass[2].piece, 4);
  EXPECT_EQ(pass[3].piece, 5);
}

TEST(ReferenceProbes, OneModeStandsForItsMedian) {
  const std::vector<ProbeReference> probes = ReferenceProbes(ProbesOf({{1.0}, {2.0}, {1.1}}));
  ASSERT_EQ(probes.size(), 1u);
  EXPECT_NEAR(probes[0].probe_s, 1.1, 1e-12);
  EXPECT_EQ(probes[0].spread, 0);
}

TEST(ReferenceProbes, ASlowVisitFavoursNoOtherMode) {
  // The machine halves its speed in the second pass; in the fourth only the last mode meets it.
  const std::vector<ProbeReference> probes =
      ReferenceProbes(ProbesOf({{1, 2, 5}, {2, 4, 10}, {1, 2, 5}, {1, 2, 10}, {1, 2, 5}}));
  EXPECT_NEAR(probes[1].probe_s / probes[0].probe_s, 2, 1e-9);
  EXPECT_NEAR(probes[2].probe_s / probes[0].probe_s, 5, 1e-9);
  EXPECT_NEAR(probes[0].spread, 0, 1e-9);
}

// What once chose wrong layouts: slow while one and two ranks were measured, fast for four.
TEST(Calibration, ASlowMinuteInSomeModesDoesNotChangeTheirRatio) {
  struct Case {
    std::string name;
    std::function<double(const Turn&)> speed;
  };
  const std::vector<Case> cases = {
      {"steady", [](const Turn&) { return 1.0; }},
      {"one mode of one pass",
       [](const Turn& at) { return at.pass == 2 && at.mode == 0 ? 0.4 : 1.0; }},
      {"two modes of one pass",
       [](const Turn& at) { return at.pass == 2 && at.mode < 2 ? 0.4 : 1.0; }},
      {"two modes of two passes",
       [](const Turn& at) { return at.pass / 2 == 1 && at.mode < 2 ? 0.4 : 1.0; }},
      {"from the middle of a pass on",
       [](const Turn& at) { return 3 * at.pass + static_cast<int>(at.turn) > 6 ? 0.4 : 1.0; }},
      {"slowly down",
       [](const Turn& at) { return 1 - 0.03 * (3 * at.pass + static_cast<int>(at.turn)); }}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    int beyond = 0;
    constexpr int kSeeds = 40;
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      const Noise noise = {.probe = 0.05, .seconds = 0.03};
      const Ratio worst = WorstRatio(Simulate(6, each.speed, noise, seed));
      EXPECT_LT(worst.error, 0.12);
      if (worst.error > 3 * worst.spread) ++beyond;
    }
    // The worst of three ratios, each between two tables: three spreads hold most of them.
    EXPECT_LE(beyond, kSeeds / 10);
  }
}

TEST(TypicalProbe, LeavesDisturbedReadingsOutWhereTheyAreFew) {
  const ProbeReading few = TypicalProbe({{1.0}, {1.2}, {9.0, true}, {1.1}});
  EXPECT_EQ(few.seconds, 1.1);
  EXPECT_FALSE(few.disturbed);
  const ProbeReading most = TypicalProbe({{1.0}, {3.0, true}, {2.0, true}});
  EXPECT_EQ(most.seconds, 2.0);
  EXPECT_TRUE(most.disturbed);
}

}  // namespace
}  // namespace trimtab
