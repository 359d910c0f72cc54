#include "cost_model/price.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cost_model/tile_share.h"
#include "engine/base/error.h"
#include "engine/ops/attention.h"
#include "engine/ops/cross_entropy.h"
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

// The arithmetic of an activation takes as long beside a product as alone; an addend is read as the
// output is that a product adds to.
TEST(Pricer, ACpuPaysForWhatAProductDoesBeside) {
  HardwareProfile profile = TableProfile();
  profile.modes[0].ops[OpKind::kActivationForward] = {{1000, 2e-6}, {100000, 2e-4}};
  const Pricer pricer(profile, {2, 1}, 8, 2);
  const double adding_s = pricer.Seconds(GemmRecord(100, 50, 20, true));
  EXPECT_EQ(pricer.Seconds(GemmRecord(100, 50, 20, GemmExtra::kAddend)), adding_s);
  EXPECT_NEAR(pricer.Seconds(GemmRecord(100, 50, 20, GemmExtra::kGelu)),
              adding_s + 2e-9 * 2 * 100 * 50 * 4, 1e-12);
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

// 512 tiles of 256 x 128 on the 132 multiprocessors of an H100 are 4 waves, of 528 places.
TEST(TileShare, CountsWholeWavesOfWholeTiles) {
  EXPECT_DOUBLE_EQ(TileShare(4096, 4096, 1, 132), 512.0 / 528);
  EXPECT_DOUBLE_EQ(TileShare(256, 128, 1, 1), 1);
  EXPECT_DOUBLE_EQ(TileShare(256, 128, 132, 132), 1) << "products of a group share waves";
  EXPECT_LT(TileShare(257, 128, 1, 1), 0.7) << "a row too many is half a tile";
  for (int64_t size = 1; size <= 1 << 14; size = 3 * size / 2 + 1) {
    EXPECT_GT(TileShare(size, 4096, 1, 132), 0);
    EXPECT_LE(TileShare(size, 4096, 1, 132), 1);
  }
}

TEST(Pricer, WorkTakesLongerWhenThereIsMoreOfIt) {
  const Pricer pricer(BuiltinProfile("h100-sxm"), {1, 1}, 8, 0, Precision::kBf16);
  const GemmTypes types = {DType::kBf16, DType::kBf16, DType::kBf16};
  double before_s = 0;
  for (int64_t rows = 128; rows <= 1 << 16; rows *= 2) {
    const double rows_s = pricer.Seconds(GemmRecord(rows, 4096, 4096, false, types));
    EXPECT_GE(rows_s, before_s) << rows;
    before_s = rows_s;
  }
  before_s = 0;
  for (int64_t tokens = 256; tokens <= 1 << 17; tokens *= 2) {
    const AttentionShape shape = {
        .batch = 1, .sequence = tokens, .heads = 16, .kv_heads = 16, .head_size = 128};
    const double forward_s = pricer.Seconds(AttentionForwardRecord(shape, DType::kBf16));
    EXPECT_GT(forward_s, before_s) << tokens;
    EXPECT_GT(pricer.Seconds(AttentionBackwardRecord(shape, DType::kBf16)), forward_s);
    before_s = forward_s;
  }
}

// Dao, arXiv:2307.08691, figure 4: FlashAttention-2 forward, causal, head size 128, at 16 k tokens
// on an A100: about 190 TFLOP/s; a step reaches about three quarters of what the kernel does alone.
TEST(Pricer, AttentionOfAnA100IsFlashAttention2s) {
  HardwareProfile profile = BuiltinProfile("a100-80gb");
  profile.launch_overhead_s.value = 0;
  const SoftwareStack flash = {.attention_kernel = AttentionKernel::kFlash2};
  const Pricer pricer(profile, {1, 1}, 8, 0, Precision::kBf16, flash);
  const AttentionShape shape = {
      .batch = 1, .sequence = 16384, .heads = 16, .kv_heads = 16, .head_size = 128};
  const OpRecord op = AttentionForwardRecord(shape, DType::kBf16);
  const double rate = static_cast<double>(op.flops) / pricer.Seconds(op);
  EXPECT_GT(rate, 0.6 * 190e12);
  EXPECT_LT(rate, 0.9 * 190e12);
}

// Korthikanti et al., arXiv:2205.05198, section 4: scores of b a s^2, which pass through memory
// several times in 16 bits where attention is not fused.
TEST(Pricer, UnfusedAttentionMovesTheScores) {
  HardwareProfile profile = BuiltinProfile("a100-80gb");
  profile.launch_overhead_s.value = 0;
  const SoftwareStack unfused = {.attention_kernel = AttentionKernel::kUnfused};
  const AttentionShape shape = {
      .batch = 1, .sequence = 2048, .heads = 12, .kv_heads = 12, .head_size = 128};
  const OpRecord op = AttentionForwardRecord(shape, DType::kBf16);
  const double fused_s = Pricer(profile, {1, 1}, 8, 0, Precision::kBf16).Seconds(op);
  const double unfused_s = Pricer(profile, {1, 1}, 8, 0, Precision::kBf16, unfused).Seconds(op);
  const double scores = 12.0 * 2048 * 2048;
  const double bandwidth = profile.memory_bandwidth.value * profile.bandwidth_efficiency.value;
  EXPECT_GT(unfused_s, 7 * scores * 2 / bandwidth);
  EXPECT_LT(unfused_s, 7 * scores * 2 / bandwidth + 10 * fused_s);
}

// NCCL's performance notes: an all-reduce of S bytes takes 2 (n - 1) / n S / bus bandwidth.
TEST(Pricer, AnAllReduceMovesTwiceItsShare) {
  HardwareProfile profile = BuiltinProfile("h100-sxm");
  profile.link_latency_s.value = 0;
  profile.link_reduces = false;
  const Pricer pricer(profile, {1, 1}, 8, 0);
  const CommRecord message = {CollectiveKind::kAllReduce, GroupKind::kData, 8, 1 << 30};
  const double bus = profile.link_bandwidth.value * profile.link_efficiency.value;
  EXPECT_DOUBLE_EQ(pricer.Seconds(message, 1), 2 * 7.0 / 8 * (1 << 30) / bus);
}

// NCCL's tests show 480 GB/s of bus bandwidth on the 8 GPUs of a DGX H100 whose switches add up,
// and 370 without: 1.3 times as much. Few bytes do not wait for the switch.
TEST(Pricer, SwitchesAddUpLargeMessages) {
  const HardwareProfile profile = BuiltinProfile("h100-sxm");
  const SoftwareStack rings = {.switch_reduction = false};
  const Pricer with(profile, {1, 1}, 8, 0);
  const Pricer without(profile, {1, 1}, 8, 0, Precision::kFp32, rings);
  CommRecord message = {CollectiveKind::kAllReduce, GroupKind::kTensor, 8, 1 << 30};
  EXPECT_NEAR(without.Seconds(message, 1) / with.Seconds(message, 1), 480.0 / 370, 0.05);
  message.bytes = 1 << 10;
  EXPECT_EQ(with.Seconds(message, 1), without.Seconds(message, 1));
  message.kind = CollectiveKind::kAllGather;
  message.bytes = 1 << 30;
  EXPECT_EQ(with.Seconds(message, 1), without.Seconds(message, 1)) << "there is nothing to add up";
}

// 64 nodes with one member each: a ring goes through 63 neighbours twice, a tree through 6.
TEST(Pricer, SmallMessagesBetweenManyNodesGoThroughATree) {
  const HardwareProfile profile = BuiltinProfile("a100-80gb");
  const Pricer pricer(profile, {1, 1}, 8, 0);
  CommRecord message = {CollectiveKind::kAllReduce, GroupKind::kData, 64, 8};
  const double hop_s = profile.network_latency_s.value;
  EXPECT_NEAR(pricer.Seconds(message, 8), 2 * 6 * hop_s, 1e-8);
  message.bytes = int64_t{1} << 34;
  const double bus = profile.network_bandwidth.value * profile.network_efficiency.value;
  EXPECT_NEAR(pricer.Seconds(message, 8),
              2 * 63.0 / 64 * static_cast<double>(message.bytes) / bus + 2 * 63 * hop_s, 1e-6);
}

TEST(Pricer, MessagesTakeLongerWithMoreBytesAndRanks) {
  for (const char* name : {"a100-80gb", "h100-sxm", "gb200"}) {
    const Pricer pricer(BuiltinProfile(name), {1, 1}, 8, 0);
    for (const CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
          CollectiveKind::kAllToAll, CollectiveKind::kBroadcast}) {
      for (const int ranks : {2, 4, 8, 16, 64, 512}) {
        double before_s = 0;
        for (int64_t bytes = 1 << 10; bytes <= int64_t{1} << 34; bytes *= 4) {
          const double seconds = pricer.Seconds({kind, GroupKind::kData, ranks, bytes}, 1);
          EXPECT_GT(seconds, before_s) << name << " " << ranks << " " << bytes;
          if (kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter) {
            EXPECT_GT(pricer.Seconds({kind, GroupKind::kData, 2 * ranks, bytes}, 1), seconds);
          }
          before_s = seconds;
        }
      }
    }
  }
}

// NVIDIA's GB200 NVL72 joins 72 GPUs of 18 trays by NVLink.
TEST(Pricer, ALinkMayJoinSeveralNodes) {
  const HardwareProfile rack = BuiltinProfile("gb200");
  HardwareProfile trays = rack;
  trays.link_domain = 0;
  const CommRecord message = {CollectiveKind::kAllGather, GroupKind::kData, 16, 1 << 30};
  const double rack_s = Pricer(rack, {1, 1}, 4, 0).Seconds(message, 4);
  EXPECT_GT(Pricer(trays, {1, 1}, 4, 0).Seconds(message, 4), 10 * rack_s);
  // 18 members of a group of stride 4 share their ports, where it leaves the rack.
  const CommRecord wide = {CollectiveKind::kAllGather, GroupKind::kData, 64, 1 << 30};
  EXPECT_LT(Pricer(rack, {1, 1}, 4, 0).Seconds(wide, 4),
            Pricer(trays, {1, 1}, 4, 0).Seconds(wide, 4) / 10);
}

TEST(Pricer, AStackScalesWhatItSays) {
  HardwareProfile profile = BuiltinProfile("h100-sxm");
  profile.launch_overhead_s.value = 0;
  const SoftwareStack stack = {.compute = {.value = 0.5},
                               .memory_traffic = {.value = 3},
                               .host_layer_s = {.value = 1e-3},
                               .host_tp_growth = {.value = 0.07},
                               .tp_exposed = {.value = 0.4}};
  const Pricer ours(profile, {1, 1}, 8, 0, Precision::kBf16);
  const Pricer theirs(profile, {1, 1}, 8, 0, Precision::kBf16, stack);
  const OpRecord product =
      GemmRecord(8192, 8192, 8192, false, {DType::kBf16, DType::kBf16, DType::kBf16});
  EXPECT_NEAR(theirs.Seconds(product), 2 * ours.Seconds(product), 1e-12);
  const OpRecord add = AddRecord(1 << 28);
  EXPECT_NEAR(theirs.Seconds(add), 3 * ours.Seconds(add), 1e-12);
  CommRecord message = {CollectiveKind::kAllReduce, GroupKind::kTensor, 8, 1 << 28};
  EXPECT_NEAR(theirs.Seconds(message, 1), 0.4 * ours.Seconds(message, 1), 1e-12);
  message.group = GroupKind::kData;
  EXPECT_EQ(theirs.Seconds(message, 1), ours.Seconds(message, 1));
}

// What our products do beside their own work is an op of its own in other software.
TEST(Pricer, AStackThatFusesNothingTakesItsPasses) {
  const HardwareProfile profile = BuiltinProfile("h100-sxm");
  const GemmTypes bf16 = {DType::kBf16, DType::kBf16, DType::kBf16};
  const SoftwareStack stack = {.fused_ops = false, .memory_traffic = {.value = 1.5}};
  const Pricer ours(profile, {1, 1}, 8, 0, Precision::kBf16);
  const Pricer theirs(profile, {1, 1}, 8, 0, Precision::kBf16, stack);
  const OpRecord alone = GemmRecord(8192, 8192, 8192, false, bf16);
  EXPECT_EQ(theirs.Seconds(alone), ours.Seconds(alone));
  const OpRecord product = GemmRecord(8192, 8192, 8192, GemmExtra::kAddend, bf16);
  EXPECT_EQ(ours.Seconds(product), ours.Seconds(alone)) << "the product is bound by compute";
  EXPECT_NEAR(theirs.Seconds(product),
              ours.Seconds(alone) + theirs.Seconds(AddRecord(8192 * 8192, DType::kBf16)), 1e-12);
  const OpRecord loss = CrossEntropyRecord(8192, 50304, DType::kBf16);
  EXPECT_GT(theirs.Seconds(loss), 1.9 * 1.5 * ours.Seconds(loss));
}

// A host of 1 ms a layer, 7 % more with each doubling of tp, and 20 us for each expert's product.
TEST(Pricer, LayersWaitForTheHostThatLaunchesThem) {
  SoftwareStack stack = {.host_layer_s = {.value = 1e-3},
                         .host_tp_growth = {.value = 0.07},
                         .expert_launch_s = {.value = 20e-6}};
  const auto wait_s = [&](const Launches& launches, double device_s) {
    return Pricer(BuiltinProfile("h100-sxm"), {1, 1}, 8, 0, Precision::kBf16, stack)
        .HostWait({.tp = 8}, launches, device_s);
  };
  EXPECT_NEAR(wait_s({.passes = 1}, 1e-9), 1.21e-3, 1e-8);
  EXPECT_NEAR(wait_s({.products = 16}, 1e-9), 320e-6, 1e-8);
  EXPECT_NEAR(wait_s({.passes = 1}, 1.21e-3), (std::pow(2, 0.25) - 1) * 1.21e-3, 1e-9);
  EXPECT_LT(wait_s({.passes = 1}, 1), 1e-9) << "a host that is ahead is not waited for";
  stack.blocking_launches = true;
  EXPECT_NEAR(wait_s({.passes = 1}, 1), 1.21e-3, 1e-12);
  EXPECT_EQ(Pricer(BuiltinProfile("h100-sxm"), {1, 1}, 8, 0).HostWait({}, {.passes = 1}, 1), 0);
}

// 16 ranks in two nodes: half of what a rank sends leaves through its own port of 400 Gb/s. Of 8
// copies of a token, 255 / 256 x 2 go there when a node gets it once.
TEST(Pricer, TokensLeaveThroughThePortOfTheirRank) {
  HardwareProfile profile = BuiltinProfile("h100-sxm");
  profile.network_efficiency.value = 1;
  profile.network_latency_s.value = profile.link_latency_s.value = 0;
  const CommRecord tokens = {CollectiveKind::kAllToAll, GroupKind::kExpert, 16, 1 << 30};
  const double port_s = 0.5 * (1 << 30) / 50e9;
  SoftwareStack stack;
  const auto seconds = [&] {
    return Pricer(profile, {1, 1}, 8, 0, Precision::kBf16, stack, {.router_topk = 8})
        .Seconds(tokens, 1);
  };
  EXPECT_NEAR(seconds(), port_s, 1e-9);
  stack.ep_exposed.value = 0.5;
  EXPECT_NEAR(seconds(), 0.5 * port_s, 1e-9);
  stack.ep_exposed.value = 1;
  stack.tokens_once_per_node = true;
  EXPECT_NEAR(seconds(), 255.0 / 256 * 2 / 8 * port_s, 1e-9);
  CommRecord within = tokens;
  within.ranks = 8;
  const double link = profile.link_bandwidth.value * profile.link_efficiency.value;
  EXPECT_NEAR(Pricer(profile, {1, 1}, 8, 0).Seconds(within, 1), 0.875 * (1 << 30) / link, 1e-9);
}

// Narayanan et al., arXiv:2104.04473, section 4.1: tensor-parallel ranks hold the same activations,
// so each sends 1 / t of them to the next stage, whose ranks gather the rest over NVLink.
TEST(Pricer, StagesMayScatterWhatTensorParallelRanksHaveAlike) {
  HardwareProfile profile = BuiltinProfile("a100-80gb");
  profile.network_latency_s.value = profile.link_latency_s.value = 0;
  const SoftwareStack scatters = {.scatters_between_stages = true};
  const Pricer ours(profile, {1, 1}, 8, 0);
  const Pricer theirs(profile, {1, 1}, 8, 0, Precision::kFp32, scatters);
  const CommRecord message = {CollectiveKind::kSend, GroupKind::kPipeline, 2, 1 << 28};
  ParallelConfig layout = {.tp = 8, .pp = 2};
  const double port = profile.network_bandwidth.value * profile.network_efficiency.value;
  const double link = profile.link_bandwidth.value * profile.link_efficiency.value;
  EXPECT_NEAR(ours.BetweenStages(message, layout), (1 << 28) / port, 1e-9);
  EXPECT_NEAR(theirs.BetweenStages(message, layout),
              (1 << 28) / 8 / port + 7.0 / 8 * (1 << 28) / link, 1e-9);
  layout.sequence_parallel = true;  // each has a part of its own
  EXPECT_EQ(theirs.BetweenStages(message, layout), ours.BetweenStages(message, layout));
}

TEST(Pricer, SortingTokensTakesLongerWithMoreExperts) {
  const SoftwareStack stack = {.dispatch_s = {.value = 1e-3}, .chunk_s = {.value = 1e-5}};
  const HardwareProfile profile = BuiltinProfile("h100-sxm");
  const Pricer ours(profile, {1, 1}, 8, 0);
  const Pricer theirs(profile, {1, 1}, 8, 0, Precision::kFp32, stack);
  OpRecord sort = {.kind = OpKind::kSortByExpert, .dims = {4096, 256, 8, 4096 * 8}};
  EXPECT_NEAR(theirs.Seconds(sort) - ours.Seconds(sort), 1e-3 + 256 * 1e-5, 1e-9);
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
