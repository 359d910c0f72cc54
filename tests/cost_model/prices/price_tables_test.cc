// Prices from tables that were measured on a machine.
#include "cost_model/prices/price_tables.h"

#include <gtest/gtest.h>

#include "cost_model/prices/price.h"
#include "engine/base/error.h"
#include "engine/ops/attention/attention_block.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/gemm/grouped_gemm.h"
#include "engine/ops/norm/norm.h"

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

TEST(PriceTables, PricesProductsByTheirRate) {
  const Pricer pricer(TableProfile(), {2, 1}, 8, 2);
  EXPECT_TRUE(pricer.calibrated());
  EXPECT_DOUBLE_EQ(pricer.step_factor(), 1.25);
  EXPECT_NEAR(pricer.Seconds(GemmRecord(100, 50, 20, false)), 2.0 * 100 * 50 * 20 / 1e9, 1e-12);
  // The rate at the edge of the table holds beyond it.
  EXPECT_NEAR(pricer.Seconds(GemmRecord(4096, 50, 8, false)), 2.0 * 4096 * 50 * 8 / 1e9, 1e-10);
  EXPECT_NEAR(pricer.Seconds(GemmRecord(100, 50, 20, true)), 2.0 * 100 * 50 * 20 / 5e8, 1e-12);
}

TEST(PriceTables, SayWhichMessagesWereMeasured) {
  const Pricer pricer(TableProfile(), {2, 1}, 8, 2);
  const CommRecord sum = {CollectiveKind::kAllReduce, GroupKind::kData, 2, 1000};
  EXPECT_TRUE(pricer.measured(sum));
  EXPECT_DOUBLE_EQ(pricer.Seconds(sum, 1), 1e-5);
  EXPECT_FALSE(pricer.measured({CollectiveKind::kAllToAll, GroupKind::kExpert, 2, 1000}));
  EXPECT_FALSE(Pricer(BuiltinProfile("cpu"), {2, 1}, 8, 2).measured(sum));
}

// Each of two threads takes half of the groups, and of a product half of its rows.
TEST(PriceTables, AThreadTakesWholeGroups) {
  HardwareProfile profile = TableProfile();
  ModeTables& tables = profile.modes[0];
  tables.mode = {1, 2};
  for (GemmPoint& point : tables.gemm) point.seconds *= point.m == 16 ? 2 : 1;
  const Pricer pricer(profile, {1, 2}, 8, 2);
  const OpRecord large = GemmRecord(256, 64, 64, false);
  const OpRecord small = GemmRecord(16, 64, 64, false);
  EXPECT_NEAR(pricer.Seconds(small), 2 * pricer.Seconds(large) / 16, 1e-12);
  EXPECT_NEAR(pricer.Seconds(GroupedGemmRecord(2, 256, 64, 64, {})), pricer.Seconds(large), 1e-12);
  EXPECT_NEAR(pricer.Seconds(GroupedGemmRecord(32, 256, 64, 64, {})), 2 * pricer.Seconds(large),
              1e-12);
}

// A cpu computes whole tiles of 64 queries: within one of them hidden scores are computed as well,
// and of 256 tokens' n (n + 64) / 2 = 40960 scores in causal attention, 65536 in a whole block.
TEST(PriceTables, ABlockOfAttentionCostsTheTilesThatItHas) {
  HardwareProfile profile = TableProfile();
  for (const int64_t sequence : {16, 64, 256}) {
    profile.modes[0].attention.push_back({8, sequence, 32, 1e-6, 3e-6});
  }
  const Pricer pricer(profile, {2, 1}, 8, 2);
  const auto ratio = [&](int64_t sequence) {
    const AttentionShape shape = {
        .rows = {2, sequence}, .heads = 4, .kv_heads = 4, .head_size = 32};
    const AttentionBlock block = {.size = sequence};
    RowLayout keys = shape.rows;
    keys.first = -sequence;
    const double forward_s = pricer.Seconds(AttentionForwardRecord(shape));
    const double backward_s = pricer.Seconds(AttentionBackwardRecord(shape));
    EXPECT_NEAR(forward_s, 1e-6, 1e-12);
    EXPECT_NEAR(backward_s, 3e-6, 1e-12);
    const double whole =
        pricer.Seconds(AttentionBlockForwardRecord(shape, keys, block)) / forward_s;
    EXPECT_NEAR(pricer.Seconds(AttentionBlockBackwardRecord(shape, keys, block)) / backward_s,
                whole, 1e-9);
    return whole;
  };
  EXPECT_NEAR(ratio(16), 1, 1e-9);
  EXPECT_NEAR(ratio(64), 1, 1e-9);
  EXPECT_NEAR(ratio(256), 1.6, 1e-9);
}

TEST(PriceTables, PricesOtherOpsAndMessagesByTheirBytes) {
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

TEST(PriceTables, ScalesTheNearestModeByTheCoresOfARank) {
  // 4 ranks on 2 cores have half a core each; the tables gave each rank a whole one.
  const Pricer pricer(TableProfile(), {4, 1}, 8, 2);
  EXPECT_FALSE(pricer.calibrated());
  EXPECT_NEAR(pricer.Seconds(GemmRecord(64, 64, 64, false)), 2 * 2.0 * 64 * 64 * 64 / 1e9, 1e-9);
}

// The arithmetic of an activation takes as long beside a product as alone; an addend is read as the
// output is that a product adds to.
TEST(PriceTables, ACpuPaysForWhatAProductDoesBeside) {
  HardwareProfile profile = TableProfile();
  profile.modes[0].ops[OpKind::kActivationForward] = {{1000, 2e-6}, {100000, 2e-4}};
  const Pricer pricer(profile, {2, 1}, 8, 2);
  const double adding_s = pricer.Seconds(GemmRecord(100, 50, 20, true));
  EXPECT_EQ(pricer.Seconds(GemmRecord(100, 50, 20, GemmExtra::kAddend)), adding_s);
  EXPECT_NEAR(pricer.Seconds(GemmRecord(100, 50, 20, GemmExtra::kGelu)),
              adding_s + 2e-9 * 2 * 100 * 50 * 4, 1e-12);
}

TEST(PriceTables, ACpuPaysForQuantisingBesideANorm) {
  HardwareProfile profile = TableProfile();
  profile.modes[0].precisions["fp8"] = {};
  profile.modes[0].precisions["bf16"] = {};
  profile.modes[0].ops[OpKind::kRmsNormBackward] = {{1000, 1e-6}, {1000000, 1e-3}};
  profile.modes[0].ops[OpKind::kQuantize] = {{1000, 3e-6}, {1000000, 3e-3}};
  const Pricer pricer(profile, {2, 1}, 8, 2, Precision::kFp8);
  const OpRecord norm = RmsNormBackwardRecord(100, 200, DType::kBf16);
  EXPECT_NEAR(
      pricer.Seconds(BesideFp8(norm, true)),
      pricer.Seconds(norm) + pricer.Seconds(QuantizeRecord(100, 200, norm.dtype, true, true)),
      1e-12);
}

TEST(PriceTables, ACpuPaysForConversions) {
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

TEST(PriceTables, MissingCellsOfAGridTakeTheirNeighboursRate) {
  HardwareProfile profile = TableProfile();
  std::erase_if(profile.modes[0].gemm, [](const GemmPoint& point) {
    return point.m == 256 && point.n == 256 && point.k == 256;
  });
  const Pricer pricer(profile, {2, 1}, 8, 2);
  EXPECT_NEAR(pricer.Seconds(GemmRecord(256, 256, 256, false)), 2.0 * 256 * 256 * 256 / 1e9, 1e-9);
}

}  // namespace
}  // namespace trimtab
