// The memory that a model which serves takes on meta is that of the cpu, to the byte: of every
// family, on every rank of layouts on up to four.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/infer/executor/serving_model.h"
#include "engine/runtime/ranks.h"
#include "engine/runtime/weights/random_weights.h"
#include "tests/engine/infer/serving_layouts.h"
#include "tests/engine/train/families.h"

namespace trimtab {
namespace {

constexpr int64_t kBlocks = 6;  // of a sequence

ServingConfig ConfigOf(const std::string& family) {
  ServingConfig config;
  config.model = FamilyRun(family).model;
  config.threads_per_rank = 1;
  config.block_size = 4;
  config.limits = {.sequences = 4, .tokens_per_step = 64};
  return config;
}

PlannedSequence Tokens(int64_t sequence, int64_t first, int64_t count, int64_t logits) {
  std::vector<int32_t> blocks(kBlocks);
  std::iota(blocks.begin(), blocks.end(), static_cast<int32_t>(kBlocks * sequence));
  return {.tokens = std::vector<int32_t>(static_cast<size_t>(count), 3),
          .first_position = first,
          .blocks = std::move(blocks),
          .logits = logits};
}

/// Prompts, then one that goes on beside a piece of another, then both with what is proposed.
void RunSteps(ServingModel& model) {
  model.Run({{Tokens(0, 0, 7, 1), Tokens(1, 0, 4, 0)}});
  model.Run({{Tokens(0, 7, 1, 1), Tokens(1, 4, 5, 1)}});
  model.Run({{Tokens(0, 8, 3, 3), Tokens(1, 9, 1, 1)}});
}

struct Peak {
  BytesByTag by_tag{};
  int64_t total = 0;
  bool operator==(const Peak&) const = default;
};

Peak PeakOf(const Device& device) {
  return {device.memory().peak_by_tag(), device.memory().peak_total()};
}

std::vector<Peak> OnCpu(const ServingConfig& config) {
  const RunConfig run = RunOf(config);
  const RandomWeights weights(config.model);
  std::vector<Peak> peaks(static_cast<size_t>(run.layout.world_size()));
  RunRanksHere(run, [&](Rank& rank) {
    ServingModel model(config, rank.parallel(), rank.device(), &weights);
    RunSteps(model);
    peaks[static_cast<size_t>(rank.index())] = PeakOf(rank.device());
  });
  return peaks;
}

Peak OnMeta(const ServingConfig& config, int rank) {
  const ParallelConfig layout = RunOf(config).layout;
  const ParallelContext parallel = MakeMetaContext(layout, rank, config.model.kv_copies(layout.tp));
  const std::unique_ptr<Device> device = MakeMetaDevice(/*threads=*/1);
  ServingModel model(config, parallel, *device, /*source=*/nullptr);
  RunSteps(model);
  return PeakOf(*device);
}

/// Of one layer on one rank that has all heads.
int64_t CacheBytesPerToken(const ModelConfig& model, DType cache) {
  if (!model.latent.used()) {
    return PagedCacheBytesPerToken(model.num_kv_heads, model.head_size(), cache);
  }
  return KeyCacheBytesPerToken(1, model.latent.kv_lora_rank + model.latent.qk_rope_head_dim, cache);
}

class ServingModelMemoryTest : public testing::TestWithParam<std::string> {};

TEST_P(ServingModelMemoryTest, OnMetaIsThatOfTheCpuToTheByte) {
  bool narrow = false;
  for (ServingConfig& config : InEveryLayout(ConfigOf(GetParam()))) {
    SCOPED_TRACE(ToString(config.layout));
    // Where a rank has all experts, how many rows each gets makes no difference.
    if (config.layout.ep > 1) config.model.moe = ToEveryExpert(config.model.moe);
    config.cache = narrow ? DType::kI8 : DType::kF32;
    config.weights = narrow ? WeightFormat::kInt8 : WeightFormat::kF32;
    narrow = !narrow;
    const std::vector<Peak> peaks = OnCpu(config);
    for (size_t rank = 0; rank < peaks.size(); ++rank) {
      const Peak meta = OnMeta(config, static_cast<int>(rank));
      EXPECT_EQ(peaks[rank].by_tag, meta.by_tag) << "rank " << rank;
      EXPECT_EQ(peaks[rank].total, meta.total) << "rank " << rank;
    }
    if (peaks.size() > 1) continue;
    EXPECT_EQ(peaks[0].by_tag[static_cast<size_t>(MemoryTag::kKvCache)],
              config.model.num_layers * config.cache_blocks * config.block_size *
                  CacheBytesPerToken(config.model, config.cache));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ServingModelMemoryTest, testing::ValuesIn(FamilyNames()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace trimtab
