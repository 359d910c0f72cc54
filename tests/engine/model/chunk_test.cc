// A model cut into chunks computes what the whole one does, its backward pass in one part or in
// two.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "engine/model/gpt_model.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

using Gradients = std::map<std::string, std::vector<float>>;

/// Two micro batches through the chunks, one after the other, on one rank.
struct Pass {
  Gradients gradients;  // of the tied table: the sum over both chunks that hold it
  double loss = 0;
};

struct ChunkUnderTest {
  ChunkUnderTest(const LayerContext& context, const ModelChunk& chunk)
      : model(store, context, chunk) {
    store.Allocate(context.device, DType::kF32, DType::kF32);
    store.Initialize(3);
  }

  ParameterStore store;
  GptModel model;
};

Pass RunChunks(const RunConfig& run, const std::vector<ModelChunk>& cut, bool two_parts) {
  const std::unique_ptr<Device> device = MakeCpuDevice(1);
  const ParallelContext parallel = MakeMetaContext(run.layout, 0);
  const LayerContext context = {.device = *device,
                                .parallel = parallel,
                                .model = run.model,
                                .micro_batch = run.layout.micro_batch,
                                .sequence = run.sequence_length};
  std::vector<std::unique_ptr<ChunkUnderTest>> chunks;
  for (const ModelChunk& chunk : cut) {
    chunks.push_back(std::make_unique<ChunkUnderTest>(context, chunk));
  }
  Tensor scale = Tensor::Empty(*device, {1}, DType::kF32, MemoryTag::kWorkspace);
  Tensor loss = Tensor::Empty(*device, {1}, DType::kF32, MemoryTag::kWorkspace);
  scale.f32()[0] = 0.5f;
  loss.f32()[0] = 0;
  for (const bool accumulate : {false, true}) {
    MicroBatch batch = NewBatches(context, WholeModel(context.model), 1).front();
    for (int64_t i = 0; i < context.tokens(); ++i) {
      batch.tokens.i32()[i] = static_cast<int32_t>((7 * i + (accumulate ? 3 : 0)) % 61);
      batch.targets.i32()[i] = static_cast<int32_t>((5 * i + 1) % 61);
    }
    std::vector<MicroBatchState> states(chunks.size());
    for (size_t i = 0; i < chunks.size(); ++i) {
      batch.hidden = chunks[i]->model.Forward(batch, scale, loss, states[i]);
    }
    Tensor dy;
    for (size_t i = chunks.size(); i-- > 0;) {
      const GptModel& model = chunks[i]->model;
      dy = two_parts ? model.BackwardInput(states[i], dy, accumulate)
                     : model.Backward(states[i], dy, accumulate);
    }
    for (size_t i = 0; two_parts && i < chunks.size(); ++i) {
      chunks[i]->model.BackwardWeight(states[i], accumulate);
    }
  }
  Pass pass;
  pass.loss = loss.f32()[0];
  for (const auto& chunk : chunks) {
    for (const Parameter* parameter : chunk->store.parameters()) {
      std::vector<float>& sum = pass.gradients[parameter->spec.name];
      sum.resize(static_cast<size_t>(parameter->numel()));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += parameter->gradient.f32()[i];
    }
  }
  return pass;
}

class ChunkTest : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  RunConfig Run() const {
    RunConfig run = SmallRun(std::get<0>(GetParam()));
    run.layout.micro_batch = 2;
    if (std::get<1>(GetParam())) run.layout.recompute = ParseRecompute("full:block:1", "plan");
    return run;
  }
};

TEST_P(ChunkTest, CutsComputeWhatTheWholeDoes) {
  const RunConfig run = Run();
  const Pass whole = RunChunks(run, {WholeModel(run.model)}, /*two_parts=*/false);
  const std::vector<std::vector<ModelChunk>> cuts = {
      {WholeModel(run.model)},
      {{0, 1, true, false}, {1, 2, false, true}},
      {{0, 0, true, false}, {0, 3, false, false}, {3, 0, false, true}},
      {{0, 1, true, false}, {1, 1, false, false}, {2, 1, false, true}}};
  for (const auto& cut : cuts) {
    for (const bool two_parts : {false, true}) {
      const Pass pass = RunChunks(run, cut, two_parts);
      EXPECT_EQ(pass.loss, whole.loss);
      ASSERT_EQ(pass.gradients.size(), whole.gradients.size());
      for (const auto& [name, gradient] : whole.gradients) {
        const std::vector<float>& actual = pass.gradients.at(name);
        for (size_t i = 0; i < gradient.size(); ++i) {
          // Bit-equal, but for the table whose two parts are added in another order.
          ASSERT_NEAR(actual[i], gradient[i], name == kTokenTable ? 1e-6 : 0) << name << " " << i;
        }
      }
    }
  }
}

std::string TestName(const testing::TestParamInfo<std::tuple<bool, bool>>& info) {
  return std::string(std::get<0>(info.param) ? "llama" : "gpt2") +
         (std::get<1>(info.param) ? "_recompute" : "");
}

INSTANTIATE_TEST_SUITE_P(Families, ChunkTest, testing::Combine(testing::Bool(), testing::Bool()),
                         TestName);

}  // namespace
}  // namespace trimtab
