#include "profiler/calibrate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "cost_model/cluster.h"
#include "cost_model/numerics.h"
#include "profiler/calibrate_ops.h"
#include "profiler/calibrate_precision.h"
#include "profiler/calibrate_rig.h"

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
  ParallelConfig layout;
  layout.tp = ranks;
  RigClock clock(static_cast<size_t>(ranks));
  RunInprocRanks(layout, [&](ParallelContext& context) {
    const std::unique_ptr<Device> device = MakeCpuDevice(1);
    Rig rig({.repeats = 1, .window_s = 1e-5}, context, *device, clock);
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

TEST(Calibration, MeasuresEveryKindOfOp) {
  std::map<OpKind, std::vector<BytesPoint>> ops;
  OnRanks(1, [&ops](Rig& rig) { ops = MeasureOps(rig, TinyPlan()); });
  // Products and attention have tables of their own.
  const std::set<OpKind> elsewhere = {OpKind::kGemm, OpKind::kAttentionForward,
                                      OpKind::kAttentionBackward};
  for (int i = 0; i < kOpKindCount; ++i) {
    const auto kind = static_cast<OpKind>(i);
    if (elsewhere.contains(kind)) continue;
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

TEST(Calibrate, RefusesADeviceItCannotMeasure) {
  CalibrateOptions options;
  options.device = "cuda";
  EXPECT_THROW(Calibrate(options), EnvironmentError);
}

TEST(Calibrate, MakesAProfileThatCalibratesThisMachine) {
  CalibrateOptions options;
  options.plan = TinyPlan();
  options.modes = {{1, 1}, {2, 1}};
  int announced = 0;
  int parts = 0;
  options.progress = [&](std::string_view part, int done, int total) {
    EXPECT_FALSE(part.empty());
    EXPECT_LT(done, total);
    ++announced;
    parts = total;
  };
  const HardwareProfile profile = Calibrate(options);
  EXPECT_GT(announced, 0);
  EXPECT_GT(parts, 0);
  ASSERT_EQ(profile.modes.size(), 2u);
  EXPECT_TRUE(profile.modes[0].collectives.empty());
  EXPECT_FALSE(profile.modes[1].collectives.empty());
  EXPECT_GT(profile.peak_flops.at("fp32").value, 0);
  EXPECT_EQ(profile.peak_flops.at("fp32").origin, Origin::kMeasured);
  for (const std::string precision : {"fp32", "bf16", "fp16", "fp8"}) {
    EXPECT_EQ(Unpriceable(profile, precision), "");
  }
  EXPECT_TRUE(LocalMachine(profile).calibrated);
}

}  // namespace
}  // namespace trimtab
