#include "cost_model/price.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/ops/attention.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/gemm.h"

namespace trimtab {
namespace {

/// A cpu whose tables hold round numbers in one mode.
HardwareProfile TableProfile() {
  HardwareProfile profile = BuiltinProfile("cpu");
  ModeTables tables;
  tables.mode = {2, 1};
  for (const int64_t m : {16, 256}) {
    for (const int64_t n : {16, 256}) {
      for (const int64_t k : {16, 256}) {
        const double flops = 2.0 * static_cast<double>(m * n * k);
        tables.gemm.push_back({m, n, k, false, flops / 1e9});
        tables.gemm.push_back({m, n, k, true, flops / 5e8});
      }
    }
  }
  tables.ops[OpKind::kAdd] = {{1000, 1e-6}, {100000, 1e-4}};
  tables.collectives[{CollectiveKind::kAllReduce, 2}] = {{1000, 1e-5}, {1000000, 1e-3}};
  tables.step_factor = 1.25;
  profile.modes.push_back(tables);
  return profile;
}

TEST(Pricer, PricesProductsByTheirRate) {
  const Pricer pricer(TableProfile(), {2, 1}, 8, 2);
  EXPECT_TRUE(pricer.calibrated());
  EXPECT_DOUBLE_EQ(pricer.step_factor(), 1.25);
  EXPECT_NEAR(pricer.Seconds(GemmRecord(100, 50, 20, false)), 2.0 * 100 * 50 * 20 / 1e9, 1e-12);
  // The rate at the edge of the table holds beyond it.
  EXPECT_NEAR(pricer.Seconds(GemmRecord(4096, 50, 8, false)), 2.0 * 4096 * 50 * 8 / 1e9, 1e-10);
  EXPECT_NEAR(pricer.Seconds(GemmRecord(100, 50, 20, true)), 2.0 * 100 * 50 * 20 / 5e8, 1e-12);
}

TEST(Pricer, PricesOtherOpsAndMessagesByTheirBytes) {
  const Pricer pricer(TableProfile(), {2, 1}, 8, 2);
  OpRecord add = AddRecord(1);
  add.bytes = 10000;
  EXPECT_NEAR(pricer.Seconds(add), 1e-5, 1e-12);
  add.bytes = 10;
  EXPECT_NEAR(pricer.Seconds(add), 1e-6, 1e-12) << "a call costs its overhead";
  add.bytes = 1000000;
  EXPECT_NEAR(pricer.Seconds(add), 1e-3, 1e-9);
  const CommRecord message = {CollectiveKind::kAllReduce, GroupKind::kTensor, 2, 10000000};
  EXPECT_NEAR(pricer.Seconds(message, 1), 1e-2, 1e-9);
}

TEST(Pricer, ScalesTheNearestModeByTheCoresOfARank) {
  // 4 ranks on 2 cores have half a core each; the tables gave each rank a whole one.
  const Pricer pricer(TableProfile(), {4, 1}, 8, 2);
  EXPECT_FALSE(pricer.calibrated());
  EXPECT_NEAR(pricer.Seconds(GemmRecord(64, 64, 64, false)), 2 * 2.0 * 64 * 64 * 64 / 1e9, 1e-9);
}

TEST(Pricer, RooflineIsBoundByComputeOrByMemory) {
  const HardwareProfile profile = BuiltinProfile("h200-sxm");
  const Pricer pricer(profile, {1, 1}, 8, 0);
  const double overhead = profile.launch_overhead_s.value;
  const OpRecord large =
      GemmRecord(8192, 8192, 8192, false, {DType::kBf16, DType::kBf16, DType::kBf16});
  const double peak = profile.peak_flops.at("bf16").value;
  EXPECT_GT(pricer.Seconds(large), static_cast<double>(large.flops) / peak);
  EXPECT_LT(pricer.Seconds(large), 2 * static_cast<double>(large.flops) / peak);
  const OpRecord add = AddRecord(1 << 28);
  EXPECT_NEAR(pricer.Seconds(add),
              static_cast<double>(add.bytes) /
                      (profile.memory_bandwidth.value * profile.bandwidth_efficiency.value) +
                  overhead,
              1e-9);
  EXPECT_GE(pricer.Seconds(AddRecord(1)), overhead);
}

TEST(Pricer, AGpuHasARateForEveryTypeOfProduct) {
  const HardwareProfile profile = BuiltinProfile("h200-sxm");
  const auto seconds = [&](Precision precision, DType dtype) {
    return Pricer(profile, {1, 1}, 8, 0, precision)
        .Seconds(GemmRecord(8192, 8192, 8192, false, {dtype, dtype, DType::kF32}));
  };
  const double bf16 = seconds(Precision::kBf16, DType::kBf16);
  EXPECT_NEAR(seconds(Precision::kFp16, DType::kF16), bf16, 0.01 * bf16);
  for (const DType fp8 : {DType::kF8E4M3, DType::kF8E5M2}) {
    EXPECT_LT(seconds(Precision::kFp8, fp8), 0.65 * bf16);
    EXPECT_GT(seconds(Precision::kFp8, fp8), 0.45 * bf16);
  }
  EXPECT_GT(seconds(Precision::kTf32, DType::kF32), 1.8 * bf16);
  EXPECT_GT(seconds(Precision::kFp32, DType::kF32), 5 * seconds(Precision::kTf32, DType::kF32));
  EXPECT_EQ(Pricer(profile, {1, 1}, 8, 0, Precision::kFp8).peak_flops(),
            profile.peak_flops.at("fp8").value);
}

TEST(Pricer, ACpuPaysForConversions) {
  HardwareProfile profile = TableProfile();
  const auto pricer = [&] { return Pricer(profile, {2, 1}, 8, 2, Precision::kBf16); };
  EXPECT_THROW(pricer(), UsageError) << "measured in fp32 only";
  profile.modes[0].precisions["bf16"] = {.gemm = 1.5, .attention = 2, .ops = 3};
  EXPECT_NEAR(
      pricer().Seconds(GemmRecord(100, 50, 20, false, {DType::kBf16, DType::kBf16, DType::kBf16})),
      1.5 * 2.0 * 100 * 50 * 20 / 1e9, 1e-12);
  // As many elements as 10000 bytes of fp32 hold.
  OpRecord add = AddRecord(1, DType::kBf16);
  add.bytes = 5000;
  EXPECT_NEAR(pricer().Seconds(add), 3e-5, 1e-11);
}

TEST(Pricer, MessagesBetweenNodesUseTheNetwork) {
  const Pricer pricer(BuiltinProfile("h100-sxm"), {1, 1}, 8, 0);
  const CommRecord message = {CollectiveKind::kAllReduce, GroupKind::kData, 8, 1 << 28};
  EXPECT_GT(pricer.Seconds(message, /*stride=*/8), 4 * pricer.Seconds(message, /*stride=*/1));
}

// Neighbours of stride 2 are four to a node: their rings have four ports.
TEST(Pricer, AGroupUsesThePortsOfAllItsMembers) {
  const Pricer pricer(BuiltinProfile("h100-sxm"), {1, 1}, 8, 0);
  const CommRecord message = {CollectiveKind::kAllReduce, GroupKind::kData, 16, 1 << 30};
  EXPECT_NEAR(pricer.Seconds(message, /*stride=*/8) / pricer.Seconds(message, /*stride=*/2), 4,
              0.1);
}

TEST(Pricer, MissingCellsOfAGridTakeTheirNeighboursRate) {
  HardwareProfile profile = TableProfile();
  std::erase_if(profile.modes[0].gemm, [](const GemmPoint& point) {
    return point.m == 256 && point.n == 256 && point.k == 256;
  });
  const Pricer pricer(profile, {2, 1}, 8, 2);
  EXPECT_NEAR(pricer.Seconds(GemmRecord(256, 256, 256, false)), 2.0 * 256 * 256 * 256 / 1e9, 1e-9);
}

}  // namespace
}  // namespace trimtab
