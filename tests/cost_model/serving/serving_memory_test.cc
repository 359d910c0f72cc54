// What is planned of memory is what the engine takes.
#include "cost_model/serving/serving_memory.h"

#include <gtest/gtest.h>

#include "cost_model/serving/serving_prediction.h"
#include "engine/base/units.h"
#include "engine/config/layout/parallel_config.h"
#include "engine/infer/executor/distributed_executor.h"
#include "engine/runtime/weights/random_weights.h"
#include "tests/engine/train/families.h"

namespace trimtab {
namespace {

struct Case {
  const char* family;
  const char* layout;
  WeightFormat weights;
  DType cache;
  int64_t lookup = 0;
};

constexpr int64_t kLength = 64;

ModelConfig ModelOf(const char* family) {
  ModelConfig model = FamilyRun(family).model;
  model.max_sequence_length = kLength;
  return model;
}

ServingConfig ConfigOf(const Case& of) {
  ServingConfig config;
  config.model = ModelOf(of.family);
  config.layout = ParseLayout(of.layout, 0);
  if (config.layout.ep > 1) config.model.moe = ToEveryExpert(config.model.moe);
  config.weights = of.weights;
  config.cache = of.cache;
  config.lookup_tokens = of.lookup;
  config.threads_per_rank = 1;
  config.limits = {.sequences = 5, .tokens_per_step = 96, .sequence_length = kLength};
  return config;
}

/// As many rows as a step has, of sequences at their longest, each of which checks what is
/// proposed.
StepPlan FullStep(const ServingConfig& config) {
  StepPlan plan;
  int64_t rows = config.limits.tokens_per_step;
  const int64_t run = 1 + config.lookup_tokens;
  const int64_t blocks = CeilDiv(config.limits.sequence_length, config.block_size);
  for (int64_t left = config.limits.sequences; left > 0; --left) {
    const int64_t own = std::min(config.limits.sequence_length, rows - (left - 1) * run);
    rows -= own;
    PlannedSequence sequence = {.tokens = std::vector<int32_t>(static_cast<size_t>(own), 1),
                                .first_position = config.limits.sequence_length - own,
                                .blocks = {},
                                .logits = run};
    for (int64_t i = 0; i < blocks; ++i) {
      sequence.blocks.push_back(static_cast<int32_t>((left - 1) * blocks + i));
    }
    plan.sequences.push_back(std::move(sequence));
  }
  return plan;
}

/// What serving `config`, which is resolved, takes of the fullest rank.
ServingMemory Planned(const ServingConfig& config) {
  ServingMemoryModel memory(config, DeviceKind::kCpu, /*threads=*/1, /*draft_threads=*/1);
  return memory.Of(config.limits, config.cache_blocks);
}

class ServingMemoryTest : public testing::TestWithParam<Case> {};

TEST_P(ServingMemoryTest, IsWhatTheEngineTakesToTheByte) {
  const ServingConfig config = ResolveServing(ConfigOf(GetParam()));
  DistributedExecutor runner(ReplicaOf(config), RandomWeights(config.model));
  runner.Run(FullStep(config));
  const ServingMemory planned = Planned(config);
  EXPECT_EQ(planned.total(), runner.peak_mem_bytes());
}

// A draft model has a rank, a cache and steps of its own; all others leave room for it.
TEST(ServingMemory, CountsTheDraftToTheByte) {
  ServingConfig config = ConfigOf({"gpt2", "tp=2", WeightFormat::kF32, DType::kF32});
  config.draft = {ModelOf("gpt2"), WeightFormat::kInt8, /*tokens=*/3};
  config = ResolveServing(config);
  const ServingConfig draft = DraftServing(config);
  EXPECT_EQ(draft.weights, WeightFormat::kInt8);
  EXPECT_EQ(draft.layout.world_size(), 1);
  DistributedExecutor runner(draft, RandomWeights(draft.model));
  runner.Run(FullStep(draft));
  const ServingMemory planned = Planned(config);
  EXPECT_EQ(planned.draft, runner.peak_mem_bytes());
  ServingMemoryModel memory(config, DeviceKind::kCpu, /*threads=*/1, /*draft_threads=*/1);
  const int64_t limit = planned.total();
  EXPECT_EQ(memory.BlocksWithin(limit, config.limits), config.cache_blocks);
  EXPECT_LT(memory.BlocksWithin(limit - 1, config.limits), config.cache_blocks);
}

// Where a step has no room for all that could be proposed, any of its rows may have logits.
TEST(ServingMemory, HasRoomForLogitsOfEveryRow) {
  ServingConfig config = ConfigOf({"gpt2", "tp=1", WeightFormat::kF32, DType::kF32});
  config.limits.tokens_per_step = 17;
  const auto step_bytes = [&](int64_t lookup) {
    config.lookup_tokens = lookup;
    return Planned(ResolveServing(config)).step;
  };
  EXPECT_GT(step_bytes(2), step_bytes(0));
  EXPECT_GT(step_bytes(3), step_bytes(2));
  EXPECT_EQ(step_bytes(8), step_bytes(3));
}

// Blocks are as many as fit, and not one more.
TEST_P(ServingMemoryTest, BlocksFillWhatIsLeft) {
  const ServingConfig config = ResolveServing(ConfigOf(GetParam()));
  ServingMemoryModel memory(config, DeviceKind::kCpu, /*threads=*/1, /*draft_threads=*/1);
  const int64_t limit = memory.Of(config.limits, 100).total() + memory.block_bytes() / 2;
  const int64_t blocks = memory.BlocksWithin(limit, config.limits);
  EXPECT_GE(blocks, 100);
  EXPECT_LE(memory.Of(config.limits, blocks).total(), limit);
  EXPECT_GT(memory.Of(config.limits, blocks + 1).total(), limit);
  EXPECT_EQ(memory.BlocksWithin(memory.weight_bytes(), config.limits), 0);
}

TEST(ServingMemory, StagesWithoutLayersLeaveRoomForAll) {
  ServingConfig config = ConfigOf({"gpt2", "pp=4", WeightFormat::kF32, DType::kF32});
  config.model.num_layers = 3;
  config = ResolveServing(config);
  ServingMemoryModel memory(config, DeviceKind::kCpu, /*threads=*/1, /*draft_threads=*/1);
  const int64_t limit = memory.Of(config.limits, 100).total();
  EXPECT_EQ(memory.BlocksWithin(limit, config.limits), 100);
}

// What moves of a sequence from one replica to another is what the fullest rank has of it.
TEST_P(ServingMemoryTest, ABlockIsCopiedWhole) {
  const ServingConfig config = ResolveServing(ConfigOf(GetParam()));
  ServingMemoryModel memory(config, DeviceKind::kCpu, /*threads=*/1, /*draft_threads=*/1);
  const CopySeconds seconds = CopySecondsOf(config, {.bytes_per_s = 1, .latency_s = 7});
  EXPECT_EQ(seconds(5), 7 + 5.0 * static_cast<double>(memory.block_bytes()));
}

INSTANTIATE_TEST_SUITE_P(
    Configurations, ServingMemoryTest,
    testing::Values(Case{"gpt2", "tp=1", WeightFormat::kF32, DType::kF32},
                    Case{"gpt2", "tp=2", WeightFormat::kInt8, DType::kI8},
                    Case{"gpt2", "pp=2", WeightFormat::kBf16, DType::kBf16},
                    Case{"gpt2", "tp=2,pp=2", WeightFormat::kF8, DType::kF8E4M3},
                    Case{"gpt2", "tp=2,sp=1", WeightFormat::kF32, DType::kF32},
                    Case{"gpt2", "tp=1", WeightFormat::kF32, DType::kF32, /*lookup=*/3},
                    Case{"gemma2", "tp=2,pp=2,dp=2", WeightFormat::kF32, DType::kBf16},
                    Case{"falcon_mqa", "tp=4", WeightFormat::kInt8, DType::kF32},
                    Case{"mixtral", "pp=2", WeightFormat::kF32, DType::kF32, /*lookup=*/2},
                    Case{"gpt_oss", "tp=2,sp=1", WeightFormat::kInt8, DType::kF8E4M3},
                    Case{"dbrx", "tp=2,sp=1,etp=2", WeightFormat::kBf16, DType::kF32},
                    Case{"qwen3", "tp=2,dp=2", WeightFormat::kF8, DType::kI8},
                    Case{"mixtral", "tp=2,sp=1,ep=2,dp=2", WeightFormat::kF32, DType::kF16},
                    Case{"deepseek", "pp=3", WeightFormat::kBf16, DType::kI8},
                    Case{"deepseek", "tp=2,sp=1,ep=2,pp=2", WeightFormat::kF32, DType::kF32},
                    Case{"deepseek_v2", "tp=2,sp=1", WeightFormat::kInt8, DType::kBf16}));

}  // namespace
}  // namespace trimtab
