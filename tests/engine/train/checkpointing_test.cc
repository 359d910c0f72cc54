#include "engine/train/checkpointing.h"

#include <gtest/gtest.h>

#include "engine/runtime/whole_model.h"
#include "engine/train/run_training.h"

namespace trimtab {
namespace {

// A checkpoint without a list of slots has the moments of AdamW: testdata/README.md.
TEST(CheckpointingTest, GoesOnFromACheckpointThatListsNoSlots) {
  const std::string folder = "testdata/checkpoints/without_slots";
  const RunConfig run = CheckpointReader(folder).header().run;
  std::vector<double> losses;
  RunConfig longer = run;
  longer.steps = 4;
  longer.optimizer.decay_steps = 4;
  RunTraining(longer, {.load = folder,
                       .on_step = [&](const TrainingStep& step) { losses.push_back(step.loss); }});
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_NEAR(losses[0], 2.5882654190063477, 1e-6);
  EXPECT_NEAR(losses[1], 2.5532336235046387, 1e-6);
}

TEST(CheckpointingTest, StoresTheSlotsOfTheRunsOptimizer) {
  RunConfig run;
  run.model.vocab_size = 8;
  run.model.hidden_size = 4;
  run.model.num_layers = run.model.num_heads = run.model.num_kv_heads = 1;
  run.model.ffn_hidden_size = 4;
  run.model.max_sequence_length = 4;
  const WholeModelDeclaration whole = DeclareWholeModel(run.model);
  const std::vector<StoredParameter> stored = StoredParameters(run, whole.parameters);
  ASSERT_EQ(stored.size(), whole.parameters.parameters().size());
  for (const StoredParameter& each : stored) {
    EXPECT_EQ(each.slots, (std::vector<std::string>{"m", "v"})) << each.spec->name;
  }
}

}  // namespace
}  // namespace trimtab
