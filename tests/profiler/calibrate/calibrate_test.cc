#include "profiler/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <thread>

#include "cost_model/dry_run/dry_run.h"
#include "cost_model/hardware/cluster.h"
#include "cost_model/hardware/numerics.h"
#include "profiler/calibrate/calibrate_precision.h"
#include "profiler/calibrate/calibrate_rig.h"
#include "profiler/calibrate/calibrate_steps.h"
#include "profiler/calibrate/calibrate_tables.h"
#include "profiler/calibrate/calibrate_visit.h"

namespace trimtab {
namespace {

/// The smallest plan that still has every kind of point: calibration in a fraction of a second.
CalibrationPlan TinyPlan() {
  CalibrationPlan plan;
  plan.gemm_m = {8, 32};
  plan.gemm_nk = {16, 64};
  plan.batch_heads = {1, 2};
  plan.sequences = {8, 16};
  plan.head_sizes = {8, 16};
  plan.op_bytes = {1 << 14, 1 << 16};
  plan.message_bytes = {64, 1 << 14};
  plan.most_flops = 1'000'000'000;
  plan.window_s = 1e-5;
  return plan;
}

void OnRanks(int ranks, const std::function<void(Rig&)>& body) {
  RunConfig run;
  run.layout.tp = ranks;
  run.threads_per_rank = 1;
  RigClock clock(static_cast<size_t>(ranks));
  RunRanks(run, [&](Rank& rank) {
    Rig rig(1e-5, rank, clock);
    body(rig);
  });
}

TEST(Rig, TimesAllRanksTogether) {
  OnRanks(2, [](Rig& rig) {
    // One rank sleeps, both report the time it took.
    const double seconds = rig.Seconds([&rig] {
      if (rig.context().rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    });
    EXPECT_GE(seconds, 0.005);
  });
}

TEST(ColdPool, HandsOutPartsInTurnAndLargeTensorsWhole) {
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  ColdPool pool(*device);
  const Tensor first = pool.Next({1024});
  const Tensor second = pool.Next({1024});
  EXPECT_EQ(second.f32() - first.f32(), 1024);
  const Tensor large = pool.Next({ColdPool::kBytes});
  EXPECT_EQ(large.numel(), ColdPool::kBytes);
  EXPECT_GT(first.f32()[0], 0);
}

TEST(Rig, EveryTimingHasTheSpeedAroundIt) {
  OnRanks(2, [](Rig& rig) {
    const auto sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(60)); };
    const double first = rig.Seconds(sleep);
    rig.Seconds(sleep);
    const double last = rig.SecondsOfCalls([] {}, 3);
    const Pass readings = rig.TakeReadings();
    ASSERT_EQ(readings.size(), 3u);
    EXPECT_EQ(readings[0].seconds, first);
    EXPECT_EQ(readings[2].seconds, last);
    for (const Reading& reading : readings) EXPECT_GT(reading.probe_s, 0);
    // Two timings of two calls each are longer than a piece.
    EXPECT_EQ(readings[0].piece, readings[1].piece);
    EXPECT_NE(readings[1].piece, readings[2].piece);
    EXPECT_TRUE(rig.TakeReadings().empty());
  });
}

TEST(Rig, AnswersWhatItIsTold) {
  const std::vector<double> answers = {3, 1, 2};
  std::span<const double> left = answers;
  RunRanks(RunConfig(), [&](Rank& rank) {
    Rig told(left, rank);
    EXPECT_EQ(told.Seconds([] { FAIL() << "was run"; }), 3);
    EXPECT_EQ(told.SecondsOfCalls([] { FAIL() << "was run"; }, 2), 1);
  });
  EXPECT_EQ(left.size(), 1u);
}

TEST(Calibration, EveryReadingOfAVisitFindsItsPlaceInATable) {
  const CalibrationPlan plan = TinyPlan();
  ModeTables tables;
  tables.mode = {4, 1};
  std::map<std::string, std::vector<double>> seconds;
  double next = 1;
  for (const auto& [table, pass] : VisitMode(tables.mode, plan)) {
    for (size_t i = 0; i < pass.size(); ++i) {
      EXPECT_GT(pass[i].seconds, 0) << table;
      EXPECT_GT(pass[i].probe_s, 0) << table;
      EXPECT_GE(pass[i].piece, pass[i > 0 ? i - 1 : 0].piece) << table;
      seconds[table].push_back(next++);
    }
  }
  FillTables(plan, seconds, tables);
  // Groups of four ranks are measured first; each has two sizes of message.
  const auto all_reduce = [&](int ranks) {
    return tables.collectives.at({CollectiveKind::kAllReduce, ranks}).front().seconds;
  };
  EXPECT_EQ(all_reduce(4), seconds.at("collectives").front());
  EXPECT_EQ(all_reduce(2), seconds.at("collectives")[seconds.at("collectives").size() / 2]);
  // Two ends share what a message takes.
  EXPECT_EQ(tables.collectives.at({CollectiveKind::kSend, 2}),
            tables.collectives.at({CollectiveKind::kRecv, 2}));
  EXPECT_EQ(tables.collectives.at({CollectiveKind::kRecv, 2}).back().seconds,
            seconds.at("collectives").back() / 2);
  EXPECT_GT(tables.collectives.at({CollectiveKind::kAllToAll, 4}).front().seconds, 0);
  EXPECT_EQ(tables.attention.back().backward_s, seconds.at("attention").back());
  EXPECT_EQ(tables.gemm.size(), seconds.at("gemm").size());
}

TEST(SpreadCaveat, NamesTheWorstTable) {
  HardwareProfile profile = BuiltinProfile("cpu");
  ModeTables& tables = profile.modes.emplace_back();
  tables.mode = {2, 1};
  tables.spread = {{"gemm", 0.03}, {"ops", 0.04}};
  EXPECT_EQ(SpreadCaveat(profile), "");
  tables.spread["ops"] = 0.12;
  tables.spread["step"] = 0.08;
  const std::string caveat = SpreadCaveat(profile);
  EXPECT_NE(caveat.find("12 % (ops of 2 ranks x 1 thread)"), std::string::npos) << caveat;
}

/// Products and attention have tables of their own; no step of training runs the ops of serving.
const std::set<OpKind>& Elsewhere() {
  static const std::set<OpKind> kinds = {OpKind::kGemm, OpKind::kGroupedGemm,
                                         OpKind::kAttentionForward, OpKind::kStoreKv,
                                         OpKind::kPagedAttention, OpKind::kAttentionBackward,
                                         OpKind::kPackedGemm, OpKind::kGroupedPackedGemm,
                                         // These updates are priced as AdamW.
                                         OpKind::kMomentum, OpKind::kNormalize, OpKind::kQuintic};
  return kinds;
}

TEST(Calibration, MeasuresEveryKindOfOp) {
  std::map<OpKind, std::vector<BytesPoint>> ops;
  OnRanks(1, [&ops](Rig& rig) { ops = MeasureOps(rig, TinyPlan()); });
  for (int i = 0; i < kOpKindCount; ++i) {
    const auto kind = static_cast<OpKind>(i);
    if (Elsewhere().contains(kind)) continue;
    SCOPED_TRACE(Name(kind));
    ASSERT_EQ(ops[kind].size(), 2u);
    EXPECT_LT(ops[kind][0].bytes, ops[kind][1].bytes);
    EXPECT_GT(ops[kind][0].seconds, 0);
  }
}

TEST(Calibration, MeasuresTheWholeGridOfProductsAndAttention) {
  OnRanks(2, [](Rig& rig) {
    const CalibrationPlan plan = TinyPlan();
    EXPECT_EQ(MeasureGemm(rig, plan).size(), 2u * 2 * 2 * 2);
    EXPECT_EQ(MeasureAttention(rig, plan).size(), 2u * 2 * 2);
    for (const auto& [kind, points] : MeasureCollectives(rig, plan)) {
      EXPECT_EQ(points.size(), 2u) << Name(kind);
    }
  });
}

TEST(Calibration, MeasuresWhatOtherPrecisionsCost) {
  OnRanks(1, [](Rig& rig) {
    const std::map<std::string, PrecisionFactors> factors = MeasurePrecisions(rig, TinyPlan());
    ASSERT_EQ(factors.size(), 3u);
    for (const char* precision : {"bf16", "fp16", "fp8"}) {
      const PrecisionFactors& each = factors.at(precision);
      for (const double factor : {each.gemm, each.attention, each.ops}) {
        EXPECT_GT(factor, 0.01) << precision;
        EXPECT_LT(factor, 1000) << precision;
      }
    }
  });
}

/// Of modes 1x1 and 2x1, coarsely calibrated.
const HardwareProfile& TinyProfile() {
  static const HardwareProfile profile = [] {
    CalibrateOptions options;
    options.plan = TinyPlan();
    options.modes = {{1, 1}, {2, 1}};
    int announced = 0;
    options.progress = [&](std::string_view part, int done, int total) {
      EXPECT_FALSE(part.empty());
      EXPECT_LT(done, total);
      ++announced;
    };
    HardwareProfile made = Calibrate(options);
    EXPECT_GT(announced, 0);
    return made;
  }();
  return profile;
}

TEST(ReferenceRace, VisitsEveryRunOfEveryModeInARound) {
  const std::vector<Mode> modes = {{1, 2}, {2, 1}};
  ReferenceRace race(modes);
  EXPECT_EQ(race.runs().size(), ReferenceRuns(modes[0]).size() + ReferenceRuns(modes[1]).size());
  std::mt19937_64 random;
  const std::vector<ProbeReading> probes = race.Round(TinyPlan(), random);
  ASSERT_EQ(probes.size(), 2u);
  for (const ProbeReading& probe : probes) EXPECT_GT(probe.seconds, 0);
  EXPECT_EQ(race.Spreads({}).size(), 2u);  // every run was visited, or this would not return
}

TEST(ReferenceRace, StepFactorsAreThoseOfTheModesHoweverTheMachineWanders) {
  const std::vector<Mode> modes = {{1, 1}, {2, 1}};
  HardwareProfile profile = TinyProfile();
  for (ModeTables& tables : profile.modes) {
    tables.step_factor = 1;
    tables.probe_spread = 0.1;  // of which nothing is to be seen
  }
  const std::vector<double> factors = {1.1, 0.8};
  const Cluster cluster = LocalMachine(profile);
  ReferenceRace race(modes);
  for (int round = 0; round < 6; ++round) {
    for (size_t i = 0; i < race.runs().size(); ++i) {
      const RunConfig& run = race.runs()[i];
      const bool first = ModeOf(run) == modes[0];
      const ModeTables& tables = profile.modes[first ? 0 : 1];
      const double slower = std::pow(1.05, round);  // in every round
      RaceVisit visit = {.entrant = i, .round = round, .mode = tables.mode};
      visit.blocks.assign(
          2, {.step_s = slower * factors[first ? 0 : 1] * DryRun(run, cluster).step_time_s,
              .probe_s = slower * tables.probe_s});
      race.Add(visit);
    }
  }
  race.FillStepFactors(profile);
  EXPECT_NEAR(profile.modes[0].step_factor / profile.modes[1].step_factor, 1.1 / 0.8, 1e-3);
  EXPECT_NEAR(profile.modes[0].step_factor, 1.1, 0.02);
  EXPECT_LT(profile.modes[0].spread.at("step"), 0.01);
}

TEST(Calibrate, RefusesADeviceItCannotMeasure) {
  CalibrateOptions options;
  options.device = DeviceKind::kCuda;
  EXPECT_THROW(Calibrate(options), EnvironmentError);
}

TEST(Calibrate, MakesAProfileThatCalibratesThisMachine) {
  const HardwareProfile& profile = TinyProfile();
  ASSERT_EQ(profile.modes.size(), 2u);
  EXPECT_TRUE(profile.modes[0].collectives.empty());
  EXPECT_FALSE(profile.modes[1].collectives.empty());
  EXPECT_GT(profile.peak_flops.at("fp32").value, 0);
  EXPECT_EQ(profile.peak_flops.at("fp32").origin, Origin::kMeasured);
  for (const Precision precision :
       {Precision::kFp32, Precision::kBf16, Precision::kFp16, Precision::kFp8}) {
    EXPECT_EQ(Unpriceable(profile, precision), "");
  }
  EXPECT_TRUE(LocalMachine(profile).calibrated);
  for (const ModeTables& tables : profile.modes) {
    EXPECT_GT(tables.probe_s, 0);
    EXPECT_EQ(tables.spread.contains("collectives"), tables.mode.ranks > 1);
    for (const char* table : {"gemm", "attention", "ops", "step"}) {
      EXPECT_TRUE(tables.spread.contains(table)) << table;
    }
    EXPECT_EQ(tables.gemm.size(), 2u * 2 * 2 * 2);
    EXPECT_EQ(tables.ops.size() + Elsewhere().size(), static_cast<size_t>(kOpKindCount));
    EXPECT_GT(tables.step_factor, 0);
  }
}

}  // namespace
}  // namespace trimtab
