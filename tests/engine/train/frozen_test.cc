// Frozen parameters keep their values, cost nothing but their weights, and change nothing else, in
// every layout.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/config/rules/rules.h"
#include "engine/runtime/ranks.h"
#include "engine/runtime/whole_model.h"
#include "engine/train/checkpointing.h"
#include "tests/cost_model/closed_form/same_estimate.h"
#include "tests/cost_model/closed_form/spaces.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 4;
constexpr double kTolerance = 1e-5;  // relative; fp32 sums in another order

/// What is frozen, by name of the case.
struct Case {
  const char* name;
  bool llama;
  bool experts;
  std::vector<std::string> frozen;
  QueryKeyNorm norms = QueryKeyNorm::kNone;  // with llama
};

const Case kCases[] = {
    {"biases_and_norms", false, false, {"*.bias", "*norm*"}},
    {"table_and_first_layer", false, false, {"embedding.*", "decoder.layers.0.*"}},
    {"all_but_attention", true, false, {"embedding.*", "output_layer.*", "*mlp*", "*norm*"}},
    {"all_but_the_head", true, false, {"embedding.*", "decoder.layers.*"}},
    {"norms_of_heads", true, false, {"*_layernorm.weight"}, QueryKeyNorm::kHeads},
    {"norms_of_whole_queries", true, false, {"*.q_layernorm.*", "*final*"}, QueryKeyNorm::kWhole},
    {"experts", true, true, {"*experts*"}},
    {"all_but_experts", false, true, {"embedding.*", "*attention*", "*norm*", "*router*"}},
};

RunConfig RunOf(const Case& test_case, const std::string& layout) {
  RunConfig run = test_case.experts ? SmallExpertRun(test_case.llama) : SmallRun(test_case.llama);
  // Every expert sees every token: a dry run then knows how many.
  if (test_case.experts) run.model.moe.router_topk = run.model.moe.num_experts;
  run.model.query_key_norm = test_case.norms != QueryKeyNorm::kNone;
  run.model.query_key_norm_whole = test_case.norms == QueryKeyNorm::kWhole;
  run.frozen = test_case.frozen;
  run.layout = ParseLayout(layout, 0);
  return run;
}

const char* const kDenseLayouts[] = {
    "dp=2,mbs=2",
    "dp=2,zero=1,mbs=1",
    "dp=4,zero=1,overlap_param_gather=1,mbs=1",
    "dp=2,zero=2,mbs=2",
    "dp=4,zero=3,mbs=1",
    "dp=4,zero=3,shard=2,reshard_after_forward=0,mbs=1",
    "tp=2,sp=1,dp=2,zero=2,mbs=1",
    "tp=4,dp=2,zero=3,mbs=2,recompute=full",
    "tp=2,sp=1,tp_overlap_chunks=2,dp=2,mbs=1",
    "pp=3,dp=2,zero=1,mbs=1",
    "pp=3,dp=2,zero=2,mbs=1,schedule=zero-bubble",
    "tp=2,sp=1,pp=3,dp=1,mbs=1,schedule=zero-bubble",
    "cp=2,dp=2,zero=3,mbs=1",
};
const char* const kExpertLayouts[] = {
    "ep=2,dp=2,mbs=2",
    "ep=2,dp=4,zero=1,mbs=1",
    "ep=2,dp=4,zero=2,mbs=1",
    "ep=4,dp=4,zero=3,mbs=1",
    "tp=2,sp=1,ep=2,etp=2,dp=2,zero=3,mbs=1",
    "pp=3,ep=2,dp=2,zero=2,mbs=1,schedule=zero-bubble",
};

std::vector<std::string> LayoutsOf(const Case& test_case) {
  const std::span<const char* const> layouts =
      test_case.experts ? std::span<const char* const>(kExpertLayouts) : kDenseLayouts;
  return {layouts.begin(), layouts.end()};
}

class FrozenTest : public testing::TestWithParam<Case> {};

// Weights that are updated by nothing train the others as weights that are not updated do.
TEST_P(FrozenTest, TrainsAsIfTheirLearningRateWereZero) {
  RunConfig run = RunOf(GetParam(), "dp=1,mbs=4");
  run.optimizer.clip_grad = 0;
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/5);
  const TrainedLosses frozen = TrainOnRanks(run, *source, kSteps);
  run.optimizer.groups = {{.match = run.frozen, .learning_rate_factor = 0, .weight_decay = false}};
  run.frozen.clear();
  const TrainedLosses still = TrainOnRanks(run, *source, kSteps);
  EXPECT_EQ(frozen.losses, still.losses);
  EXPECT_LT(frozen.grad_norms[0], still.grad_norms[0]) << "the norm is that of what is trained";
}

TEST_P(FrozenTest, TrainsAlikeInEveryLayoutWithinTheMemoryOfTheDryRun) {
  const RunConfig alone = RunOf(GetParam(), "dp=1,mbs=4");
  const auto source = MakeSyntheticSource(alone.model.vocab_size, /*seed=*/5);
  const TrainedLosses expected = TrainOnRanks(alone, *source, kSteps);
  EXPECT_EQ(expected.peak_bytes, DryRunPeaks(alone, *source));
  for (const std::string& layout : LayoutsOf(GetParam())) {
    SCOPED_TRACE(layout);
    const RunConfig run = RunOf(GetParam(), layout);
    const Rule* broken = FirstBrokenRule(run);
    ASSERT_EQ(broken, nullptr) << broken->id;
    const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
    ExpectSameTraining(actual, expected, kTolerance);
    EXPECT_EQ(actual.peak_bytes, DryRunPeaks(run, *source));
  }
}

TEST_P(FrozenTest, KeepsTheirValuesAndSavesNoState) {
  const std::string folder = ScratchFolder() + "/checkpoint";
  const RunConfig run = RunOf(GetParam(), GetParam().experts ? "ep=2,dp=2,zero=3,precision=bf16"
                                                             : "tp=2,dp=2,zero=3,precision=bf16");
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/5);
  const WholeModelDeclaration whole(run, MakeMetaContext({}, 0), *MakeMetaDevice(1));
  const auto save = [&](int64_t steps) {
    CheckpointWriter writer(folder, {.run = run}, StoredParameters(run, whole.parameters));
    RunRanks(run, [&](Rank& rank) {
      Trainer trainer(run, rank.parallel(), rank.device());
      for (int64_t step = 0; step < steps; ++step) trainer.Step(*source, step);
      WriteState(trainer, writer);
    });
    writer.Finish();
    const CheckpointReader reader(folder);
    std::vector<std::vector<float>> values;
    for (const Parameter* each : whole.parameters.parameters()) {
      values.emplace_back(static_cast<size_t>(each->numel()));
      reader.Read(kWeightSlot, {&each->spec, 0, values.back()});
    }
    return values;
  };
  const auto before = save(0);
  const auto after = save(3);
  const SafetensorsReader state(folder + "/optimizer.safetensors");
  size_t trained = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const ParameterSpec& spec = whole.parameters.parameters()[i]->spec;
    EXPECT_EQ(before[i] != after[i], spec.trainable) << spec.name;
    if (spec.trainable) ++trained;
  }
  EXPECT_EQ(state.entries().size(), 2 * trained);
}

TEST_P(FrozenTest, CostTheSameInBothTiers) {
  const RunConfig alone = RunOf(GetParam(), "dp=1,mbs=4");
  const Cluster cluster = GenericCpu();
  ClosedFormEstimator estimator(alone.model, alone.sequence_length, cluster);
  for (const std::string& layout : LayoutsOf(GetParam())) {
    SCOPED_TRACE(layout);
    ExpectSameStages(estimator, RunOf(GetParam(), layout), cluster);
  }
  // The estimator tells what is frozen apart.
  RunConfig trained = alone;
  trained.frozen.clear();
  ExpectSameStages(estimator, trained, cluster);
}

INSTANTIATE_TEST_SUITE_P(Cases, FrozenTest, testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

/// Counts matrix products.
class ProductCounter final : public Recorder {
 public:
  void BeginOp(const OpRecord& op) override { count += op.kind == OpKind::kGemm ? 1 : 0; }
  void BeginComm(const CommRecord&) override {}
  void BeginWait(const CommRecord&) override {}
  void End() override {}

  int64_t count = 0;
};

int64_t Products(const RunConfig& run) {
  const auto device = MakeMetaDevice(1);
  const ParallelContext context = MakeMetaContext(run.layout, 0);
  Trainer trainer(run, context, *device);
  ProductCounter counter;
  device->set_recorder(&counter);
  trainer.Step(*MakeSyntheticSource(run.model.vocab_size, 1), 0);
  device->set_recorder(nullptr);
  return counter.count;
}

TEST(FrozenProductsTest, MakeNoWeightGradient) {
  RunConfig run = SmallRun(/*llama=*/true);
  run.layout = ParseLayout("dp=1,mbs=8", 0);
  const int64_t all = Products(run);
  run.frozen = {"decoder.layers.*.mlp.*"};
  EXPECT_EQ(all - Products(run), 2 * run.model.num_layers) << "two linear layers in each";
  run.frozen.push_back("output_layer.weight");
  EXPECT_EQ(all - Products(run), 2 * run.model.num_layers + 1);
}

std::string MessageFor(const std::vector<std::string>& frozen) {
  RunConfig run = SmallRun(/*llama=*/true);
  run.layout = ParseLayout("dp=1,mbs=8", 0);
  run.frozen = frozen;
  return MessageOf<InputError>([&] { Products(run); });
}

TEST(FrozenNamesTest, MustBeOfTheModelAndLeaveSomethingToTrain) {
  EXPECT_EQ(
      MessageFor({"*mlp*", "decoder.layers.7.*"}),
      "frozen: 'decoder.layers.7.*' matches no parameter of 'small-llama'; expected names such "
      "as decoder.final_layernorm.weight");
  EXPECT_EQ(MessageFor({"*"}),
            "frozen: every parameter of 'small-llama' is frozen; expected some to train");
}

}  // namespace
}  // namespace trimtab
