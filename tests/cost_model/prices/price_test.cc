#include "cost_model/prices/price.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cost_model/prices/tile_share.h"
#include "engine/base/error.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/vocabulary/cross_entropy.h"

namespace trimtab {
namespace {

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

// A tile of 256 x 128 on an A100: 2 x 256 x 128 x 1024 FLOPs at 312e12 / 108 take 23 us, writing it
// 256 x 128 x 2 bytes at 2.04e12 / 108 3.5 us.
TEST(TileShare, ATileFetchesAndWritesBesideWhatItMultiplies) {
  const double multiplied_s = 2.0 * 256 * 128 * 1024 * 108 / 312e12;
  const double written_s = 2.0 * 256 * 128 * 108 / 2.04e12;
  EXPECT_NEAR(DepthShare(1024), multiplied_s / (multiplied_s + written_s), 0.03);
  EXPECT_DOUBLE_EQ(DepthShare(128), 0.5);
  EXPECT_GT(DepthShare(8192), 0.98);
  for (int64_t k = 1; k < 1 << 16; k = 2 * k + 1) {
    EXPECT_GT(DepthShare(2 * k), DepthShare(k));
    EXPECT_GT(static_cast<double>(2 * k) / DepthShare(2 * k),
              static_cast<double>(k) / DepthShare(k));
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
        .rows = {1, tokens}, .heads = 16, .kv_heads = 16, .head_size = 128};
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
  const AttentionShape shape = {.rows = {1, 16384}, .heads = 16, .kv_heads = 16, .head_size = 128};
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
  const AttentionShape shape = {.rows = {1, 2048}, .heads = 12, .kv_heads = 12, .head_size = 128};
  const OpRecord op = AttentionForwardRecord(shape, DType::kBf16);
  const double fused_s = Pricer(profile, {1, 1}, 8, 0, Precision::kBf16).Seconds(op);
  const double unfused_s = Pricer(profile, {1, 1}, 8, 0, Precision::kBf16, unfused).Seconds(op);
  const double scores = 12.0 * 2048 * 2048;
  const double bandwidth = profile.memory_bandwidth.value * profile.bandwidth_efficiency.value;
  EXPECT_GT(unfused_s, 7 * scores * 2 / bandwidth);
  EXPECT_LT(unfused_s, 7 * scores * 2 / bandwidth + 10 * fused_s);
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
  // A large one hardly waits for memory, whose share of the time is less at half the speed.
  EXPECT_LT(theirs.Seconds(product), 2 * ours.Seconds(product));
  EXPECT_GT(theirs.Seconds(product), 1.99 * ours.Seconds(product));
  const OpRecord add = AddRecord(1 << 28);
  EXPECT_NEAR(theirs.Seconds(add), 3 * ours.Seconds(add), 1e-12);
  CommRecord message = {CollectiveKind::kAllReduce, GroupKind::kTensor, 8, 1 << 28};
  EXPECT_NEAR(theirs.Seconds(message, 1), 0.4 * ours.Seconds(message, 1), 1e-12);
  message.group = GroupKind::kData;
  EXPECT_EQ(theirs.Seconds(message, 1), ours.Seconds(message, 1));
}

// A release that gets faster every year would pass it.
TEST(Pricer, NoStackMultipliesFasterThanWasMeasured) {
  const HardwareProfile profile = BuiltinProfile("a100-80gb");
  const OpRecord product =
      GemmRecord(8192, 8192, 8192, false, {DType::kBf16, DType::kBf16, DType::kBf16});
  const auto share_of_peak = [&](double compute) {
    const SoftwareStack stack = {.compute = {.value = compute}};
    const Pricer pricer(profile, {1, 1}, 8, 0, Precision::kBf16, stack);
    const double peak_s = static_cast<double>(product.flops) / profile.peak_flops.at("bf16").value;
    return peak_s / pricer.Seconds(product);
  };
  EXPECT_LT(share_of_peak(1), 0.85);
  EXPECT_GT(share_of_peak(1.05), share_of_peak(1));
  EXPECT_LE(share_of_peak(2), 0.87);
  EXPECT_EQ(share_of_peak(2), share_of_peak(4));
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
  EXPECT_GT(ours.Seconds(product), ours.Seconds(alone));
  EXPECT_LT(ours.Seconds(product), 1.01 * ours.Seconds(alone)) << "the product hides most of it";
  EXPECT_NEAR(theirs.Seconds(product),
              ours.Seconds(alone) + theirs.Seconds(AddRecord(8192 * 8192, DType::kBf16)), 1e-12);
  const OpRecord loss = CrossEntropyRecord(8192, 50304, DType::kBf16);
  EXPECT_GT(theirs.Seconds(loss), 1.9 * 1.5 * ours.Seconds(loss));
}

// Megatron-LM's vocab_parallel_cross_entropy of 2022 goes over logits in fp32: a copy of those in
// 16 bits (6 bytes), their largest (4), less that (8), the exponentials (8), their sum (4) and
// quotient (8); back a product with the gradient (8) and a copy in 16 bits (6): 52 bytes a logit.
TEST(Pricer, ALossInFp32MovesMoreBytes) {
  const HardwareProfile profile = BuiltinProfile("a100-80gb");
  const double bandwidth = profile.memory_bandwidth.value * profile.bandwidth_efficiency.value;
  const SoftwareStack stack = {.memory_traffic = {.value = 1.5}, .loss_bytes = {.value = 44}};
  const Pricer ours(profile, {1, 1}, 8, 0, Precision::kBf16, {.memory_traffic = {.value = 1.5}});
  const Pricer theirs(profile, {1, 1}, 8, 0, Precision::kBf16, stack);
  const auto more_s = [&](const OpRecord& op) { return theirs.Seconds(op) - ours.Seconds(op); };
  constexpr int64_t kRows = 8192;
  constexpr int64_t kVocab = 50304;
  const double loss_s = 44.0 * kRows * kVocab * 1.5 / bandwidth;
  EXPECT_NEAR(more_s(CrossEntropyRecord(kRows, kVocab, DType::kBf16)), loss_s, 1e-9);
  // Of a vocabulary that ranks share, each has its part.
  EXPECT_NEAR(more_s(CrossEntropyPartsRecord(kRows, kVocab / 8, DType::kBf16)) +
                  more_s(CrossEntropyGradRecord(kRows, kVocab / 8, 8, DType::kBf16)),
              loss_s / 8, 1e-9);
  EXPECT_EQ(more_s(AddRecord(kRows * kVocab)), 0);
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

TEST(Pricer, SortingTokensTakesLongerWithMoreExperts) {
  const SoftwareStack stack = {.dispatch_s = {.value = 1e-3}, .chunk_s = {.value = 1e-5}};
  const HardwareProfile profile = BuiltinProfile("h100-sxm");
  const Pricer ours(profile, {1, 1}, 8, 0);
  const Pricer theirs(profile, {1, 1}, 8, 0, Precision::kFp32, stack);
  OpRecord sort = {.kind = OpKind::kSortByExpert, .dims = {4096, 256, 8, 4096 * 8}};
  EXPECT_NEAR(theirs.Seconds(sort) - ours.Seconds(sort), 1e-3 + 256 * 1e-5, 1e-9);
}

}  // namespace
}  // namespace trimtab
