#include "cost_model/serving/serving_price.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"

namespace trimtab {
namespace {

Quantity Of(double value) { return {.value = value, .source = "made up"}; }

/// 1 TB/s, 100 TFLOP/s in 16 bits and 200 in fp8, a link of 100 GB/s.
HardwareProfile MadeUpGpu() {
  HardwareProfile profile;
  profile.name = "made-up";
  profile.device = DeviceKind::kCuda;
  profile.generation = "none";
  profile.memory_bytes = Of(80e9);
  profile.memory_bandwidth = Of(1e12);
  profile.peak_flops = {{"bf16", Of(1e14)}, {"fp8", Of(2e14)}};
  profile.link_bandwidth = Of(1e11);
  return profile;
}

/// Half of everything, and no time that is not asked for.
struct MadeUp {
  MadeUp() {
    for (const auto& number : ServingGpuNumbers()) gpu.*number.member = Of(0.5);
    gpu.weight_only = Of(1);
    gpu.message_s = Of(0);
    for (const auto& number : ServingEngineNumbers()) engine.*number.member = Of(0);
    for (Quantity* factor : {&engine.compute, &engine.bandwidth, &engine.link,
                             &engine.expert_bandwidth, &engine.expert_compute}) {
      *factor = Of(1);
    }
  }
  ServingBreakdown Price(const ServingWork& work,
                         ServingPrecision weights = ServingPrecision::k16Bit) const {
    return ServingPricer(ServingRatesOf(MadeUpGpu(), gpu, engine, weights, /*kv_bytes=*/2))
        .Price(work);
  }
  ServingGpu gpu;
  ServingEngine engine;
};

TEST(ServingPrice, StreamsWeightsAndMultipliesNearlySideBySide) {
  const ServingProduct product = {.low_precision = true, .weights = 1e9, .flops = 1e12, .count = 2};
  // 2 GB at half of 1 TB/s: 4 ms; 1 TFLOP at 50 TFLOP/s: 20 ms.
  const double wide = std::pow(std::pow(4e-3, 1.8) + std::pow(20e-3, 1.8), 1 / 1.8);
  EXPECT_NEAR(MadeUp().Price({.products = {product}}).dense_s, 2 * wide, 1e-12);
  const double fp8 = std::pow(std::pow(2e-3, 1.8) + std::pow(10e-3, 1.8), 1 / 1.8);
  EXPECT_NEAR(MadeUp().Price({.products = {product}}, ServingPrecision::kFp8).dense_s, 2 * fp8,
              1e-12);
}

TEST(ServingPrice, ACpuUnpacksWeightsForEachOfFewRowsAndOnceForMany) {
  const auto seconds = [](double rows, double weight_bytes, ServingProduct::Kind kind) {
    const ServingRates rates = {.weight_bytes = weight_bytes,
                                .low_rate = 1e30,
                                .kv_rate = 1e30,
                                .other_rate = 1e30,
                                .expert_rate = 1e30,
                                .rate_low = 1e30,
                                .unpack_rate = 1e9,
                                .expert_flops = 1e30,
                                .attention_flops = 1e30};
    const ServingWork work = {.products = {{.kind = kind,
                                            .low_precision = true,
                                            .weights = 1e6,
                                            .flops = 2e6 * rows,
                                            .count = 1}},
                              .all_tokens = 1e9,
                              .routed_share = 0.5};
    return ServingPricer(rates).Price(work).seconds();
  };
  for (const auto kind : {ServingProduct::Kind::kDense, ServingProduct::Kind::kExperts}) {
    EXPECT_NEAR(seconds(1, 1, kind), 1e-3, 1e-9);
    EXPECT_NEAR(seconds(3, 1, kind), 3e-3, 1e-9);
    EXPECT_NEAR(seconds(4, 1, kind), 1e-3, 1e-9);
    EXPECT_NEAR(seconds(64, 1, kind), 1e-3, 1e-9);
    // fp32: few rows multiply by it where it is.
    EXPECT_NEAR(seconds(3, 4, kind), 0, 1e-9);
    EXPECT_NEAR(seconds(4, 4, kind), 1e-3, 1e-9);
  }
}

TEST(ServingPrice, ACpusProductsDifferByRowsAsMeasured) {
  ServingRates rates = {.weight_bytes = 4,
                        .low_rate = 4e9,
                        .kv_rate = 1e30,
                        .other_rate = 1e30,
                        .rate_low = 1e30,
                        .by_rows = {1, 1, 5, 1, 2, 0.5, 1, 1, 1, 3},
                        .attention_flops = 1e30};
  const auto seconds = [&](double rows) {
    const ServingProduct product = {
        .low_precision = true, .weights = 1e6, .flops = 2e6 * rows, .count = 1};
    return ServingPricer(rates).Price({.products = {product}}).seconds();
  };
  EXPECT_NEAR(seconds(1), 1e-3, 1e-9);
  EXPECT_NEAR(seconds(8), 2e-3, 1e-9);
  // What rows cost that are multiplied one by one says nothing of those that are not.
  EXPECT_NEAR(seconds(3), 5e-3, 1e-9);
  EXPECT_NEAR(seconds(4), 1e-3, 1e-9);
  EXPECT_NEAR(seconds(16), 0.5e-3, 1e-9);
  EXPECT_NEAR(seconds(std::sqrt(8.0 * 16)), 1.25e-3, 1e-9);  // half way, by the ratio
  EXPECT_NEAR(seconds(1000), 3e-3, 1e-9);
  rates.by_rows.clear();
  EXPECT_NEAR(seconds(8), 1e-3, 1e-9);
}

TEST(ServingPrice, ReadsTheExpertsThatTokensTouch) {
  ServingWork work = {.products = {{.kind = ServingProduct::Kind::kExperts,
                                    .low_precision = true,
                                    .weights = 1e9,
                                    .flops = 1,
                                    .count = 1}},
                      .all_tokens = 1,
                      .routed_share = 0.125};
  EXPECT_NEAR(MadeUp().Price(work).experts_s, 4e-3 / 8, 1e-9);
  // Of unevenly popular ones 12 tokens touch 1 - (1 + 12 / 8 / 0.5)^-0.5.
  work.all_tokens = 12;
  EXPECT_NEAR(MadeUp().Price(work).experts_s, 4e-3 / 2, 1e-9);
  work.all_tokens = 1e12;
  EXPECT_NEAR(MadeUp().Price(work).experts_s, 4e-3, 1e-8);
  // Of equally popular ones 1 - (7 / 8)^12.
  work.all_tokens = 12;
  const MadeUp even;
  ServingRates rates =
      ServingRatesOf(MadeUpGpu(), even.gpu, even.engine, ServingPrecision::k16Bit, 2);
  rates.popularity = 0;
  EXPECT_NEAR(ServingPricer(rates).Price(work).experts_s, 4e-3 * (1 - std::pow(0.875, 12)), 1e-9);
}

TEST(ServingPrice, ExpertsHaveKernelsOfEachPrecision) {
  MadeUp made_up;
  made_up.engine.expert_layer_s = Of(1e-3);
  made_up.gpu.expert_overhead_8 = Of(2);
  made_up.gpu.expert_overhead_widened = Of(3);
  made_up.gpu.expert_bandwidth_widened = Of(0.25);
  const ServingWork layer = {.expert_layers = 1};
  EXPECT_NEAR(made_up.Price(layer).experts_s, 1e-3, 1e-12);
  EXPECT_NEAR(made_up.Price(layer, ServingPrecision::kFp8).experts_s, 2e-3, 1e-12);
  EXPECT_NEAR(made_up.Price(layer, ServingPrecision::kInt4).experts_s, 3e-3, 1e-12);
  const ServingWork read = {.products = {{.kind = ServingProduct::Kind::kExperts,
                                          .low_precision = true,
                                          .weights = 1e9,
                                          .flops = 1,
                                          .count = 1}},
                            .all_tokens = 1e12,
                            .routed_share = 0.125};
  EXPECT_NEAR(made_up.Price(read, ServingPrecision::kInt4).experts_s, 0.5625e9 / 0.25e12, 1e-8);
}

TEST(ServingPrice, OfCacheMessagesGapsAndHost) {
  MadeUp made_up;
  made_up.gpu.message_s = Of(5e-6);
  made_up.engine.gap_s = Of(2e-6);
  made_up.engine.host_s = Of(1e-3);
  made_up.engine.sequence_s = Of(1e-5);
  const ServingBreakdown parts =
      made_up.Price({.messages = {{.ranks = 4, .bytes = 1e6, .count = 10}},
                     .kv_values = 1e9,
                     .attention_flops = 5e11,
                     .other_bytes = 1e9,
                     .ops = 250,
                     .kernels = 100,
                     .sequences = 32});
  EXPECT_NEAR(parts.attention_s, 2e9 / 0.5e12 + 5e11 / 0.5e14, 1e-12);
  EXPECT_NEAR(parts.messages_s, 10 * (5e-6 + 1e-6 + 1.5 * 1e6 / 0.5e11), 1e-12);
  // Half of an all-reduce each; and a message from one rank to another is moved once.
  for (const CollectiveKind kind :
       {CollectiveKind::kReduceScatter, CollectiveKind::kAllGather, CollectiveKind::kAllToAll}) {
    const ServingMessage message = {.kind = kind, .ranks = 4, .bytes = 1e6, .count = 10};
    EXPECT_NEAR(made_up.Price({.messages = {message}}).messages_s,
                10 * (5e-6 + 1e-6 + 0.75 * 1e6 / 0.5e11), 1e-12);
  }
  const ServingMessage hop = {.kind = CollectiveKind::kSend, .ranks = 2, .bytes = 1e6, .count = 3};
  EXPECT_NEAR(made_up.Price({.messages = {hop}}).messages_s, 3 * (5e-6 + 1e6 / 0.5e11), 1e-12);
  EXPECT_NEAR(parts.other_s, 2e-3, 1e-12);
  EXPECT_NEAR(parts.gaps_s, 2e-4, 1e-12);
  made_up.engine.launches_each_op = true;
  EXPECT_NEAR(made_up.Price({.ops = 250, .kernels = 100}).gaps_s, 5e-4, 1e-12);
  EXPECT_NEAR(parts.host_s, 1e-3 + 32e-5, 1e-12);
  EXPECT_EQ(parts.prompt_floor_s, 0);
}

TEST(ServingPrice, StepsWithPromptsTakeAtLeastTheirLaunches) {
  MadeUp made_up;
  made_up.engine.prompt_layer_s = Of(1e-3);
  const ServingWork work = {.layers = 40, .prompt_tokens = 1};
  EXPECT_NEAR(made_up.Price(work).seconds(), 40e-3, 1e-12);
}

TEST(ServingPrice, AGpuWithoutBf16MultipliesFp16) {
  HardwareProfile profile = MadeUpGpu();
  const MadeUp made_up;
  const ServingRates bf16 =
      ServingRatesOf(profile, made_up.gpu, made_up.engine, ServingPrecision::k16Bit, 2);
  profile.peak_flops = {{"fp16", Of(1e14)}, {"fp32", Of(1e13)}};
  const ServingRates fp16 =
      ServingRatesOf(profile, made_up.gpu, made_up.engine, ServingPrecision::k16Bit, 2);
  EXPECT_GT(fp16.rate_16, 0);
  EXPECT_EQ(fp16.rate_16, bf16.rate_16);
}

TEST(ServingPrice, RefusesAProfileWithoutAPeak) {
  HardwareProfile profile = MadeUpGpu();
  profile.peak_flops.clear();
  EXPECT_THROW(ServingRatesOf(profile, MadeUp().gpu, MadeUp().engine, ServingPrecision::kFp8, 2),
               UsageError);
}

}  // namespace
}  // namespace trimtab
