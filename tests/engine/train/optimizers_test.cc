// Every optimizer: against PyTorch, in every stage and a sample of layouts, in checkpoints, and in
// the tiers of the cost model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/io/file.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/config/json/strict_json.h"
#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"
#include "engine/runtime/ranks.h"
#include "engine/runtime/whole_model.h"
#include "engine/train/checkpointing.h"
#include "tests/cost_model/closed_form/same_estimate.h"
#include "tests/cost_model/closed_form/spaces.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

const std::string kGoldens = "testdata/goldens/";

/// The samples of a family's golden.
class GoldenSamples final : public TokenSource {
 public:
  explicit GoldenSamples(const SafetensorsReader& golden)
      : tokens_(static_cast<size_t>(golden.Find("tokens").numel())) {
    golden.Read(golden.Find("tokens"), 0, tokens_);
  }
  void Sample(int64_t index, std::span<int32_t> tokens) const override {
    const size_t begin = static_cast<size_t>(index) * tokens.size();
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(tokens_.at(begin + i));
    }
  }
  int64_t vocab_size() const override { return 61; }

 private:
  std::vector<float> tokens_;
};

class GoldenOptimizerTest : public testing::TestWithParam<nlohmann::json> {};

std::vector<nlohmann::json> GoldenRows() {
  return ReadJsonFile(kGoldens + "optimizers.json").get<std::vector<nlohmann::json>>();
}

TEST_P(GoldenOptimizerTest, TrainsAsPyTorchDoes) {
  const nlohmann::json& row = GetParam();
  const std::string stem = kGoldens + row["family"].get<std::string>();
  RunConfig run = LoadRunConfig(stem + ".json");
  run.optimizer = OptimizerConfigFromJson(row["optimizer"], "optimizers.json: $");
  const bool rounds = row["moments"] == "int8";
  if (rounds) run.layout.numerics.moments = DType::kI8;
  const SafetensorsReader golden(stem + ".safetensors");
  const auto device = MakeCpuDevice(1);
  const ParallelContext context = MakeMetaContext(run.layout, 0);
  Trainer trainer(run, context, *device);
  for (const Parameter* parameter : trainer.parameters().parameters()) {
    const SafetensorsEntry& entry = golden.Find("weights." + std::string(parameter->spec.name));
    std::vector<float> values(static_cast<size_t>(entry.numel()));
    golden.Read(entry, 0, values);
    trainer.shards().WriteWeights(parameter->offset, values);
  }
  const GoldenSamples samples(golden);
  const auto losses = row["losses"].get<std::vector<double>>();
  const auto norms = row["grad_norms"].get<std::vector<double>>();
  // A moment that is rounded to the other of two neighbouring numbers moves an element differently.
  const double tolerance = rounds ? 1e-3 : 2e-5;
  for (size_t step = 0; step < losses.size(); ++step) {
    const StepResult result = trainer.Step(samples, static_cast<int64_t>(step));
    EXPECT_NEAR(result.loss, losses[step], tolerance * losses[step]) << "step " << step;
    EXPECT_NEAR(result.grad_norm, norms[step], 20 * tolerance * norms[step]) << "step " << step;
  }
}

std::string GoldenName(const testing::TestParamInfo<nlohmann::json>& info) {
  const nlohmann::json& row = info.param;
  return fmt::format("{}_{}_{}_{}", row["family"].get<std::string>(),
                     row["optimizer"].value("kind", "adamw"), row["moments"].get<std::string>(),
                     info.index);
}
INSTANTIATE_TEST_SUITE_P(Goldens, GoldenOptimizerTest, testing::ValuesIn(GoldenRows()), GoldenName);

/// An optimizer to lay out.
struct Case {
  const char* name;
  OptimizerKind kind;
  const char* types;  // keys of the layout
  double tolerance;   // relative; of losses
};
const Case kCases[] = {
    {"sgd", OptimizerKind::kSgd, "", 1e-5},
    {"sgd_bf16", OptimizerKind::kSgd, ",precision=bf16,moments=bf16", 1e-2},
    {"muon", OptimizerKind::kMuon, "", 5e-5},
    {"muon_bf16", OptimizerKind::kMuon, ",precision=bf16,master=remainder", 1e-2},
    {"muon_fp16", OptimizerKind::kMuon, ",precision=fp16,moments=fp16", 1e-2},
    {"adamw_int8", OptimizerKind::kAdamW, ",moments=int8", 2e-3},
    {"sgd_int8", OptimizerKind::kSgd, ",moments=int8", 2e-3},
};

/// What is laid out over what.
enum class Model { kDense, kCopiedHeads, kExperts };

RunConfig RunOf(const Case& test_case, Model shape, const std::string& layout) {
  RunConfig run =
      shape == Model::kExperts ? SmallExpertRun(/*llama=*/true) : SmallRun(/*llama=*/true);
  if (shape == Model::kExperts) run.model.moe.router_topk = run.model.moe.num_experts;
  if (shape == Model::kCopiedHeads) run.model.num_kv_heads = 2;
  run.optimizer.kind = test_case.kind;
  run.layout = ParseLayout(layout + test_case.types, 0);
  return run;
}

std::vector<std::string> LayoutsOf(Model shape) {
  switch (shape) {
    case Model::kDense:
      return {"dp=2,mbs=2",
              "dp=2,zero=1,mbs=2",
              "dp=4,zero=1,overlap_param_gather=1,mbs=1",
              "dp=4,zero=2,mbs=1",
              "dp=4,zero=3,mbs=1",
              "dp=4,zero=3,shard=2,mbs=1",
              "tp=2,dp=1,mbs=4",
              "tp=4,sp=1,dp=2,zero=1,mbs=2",
              "tp=2,sp=1,dp=4,zero=3,mbs=1",
              "pp=3,dp=2,zero=2,mbs=1,schedule=zero-bubble",
              "tp=2,pp=3,dp=1,mbs=2",
              "cp=2,dp=2,zero=2,mbs=1"};
    case Model::kCopiedHeads:
      return {"tp=4,dp=2,zero=1,mbs=2", "tp=4,sp=1,dp=1,mbs=4"};
    case Model::kExperts:
      return {"ep=2,dp=2,mbs=2", "ep=2,dp=4,zero=1,mbs=1", "tp=2,sp=1,ep=2,etp=2,dp=2,zero=3,mbs=1",
              "ep=4,dp=4,zero=2,mbs=1", "pp=3,ep=2,dp=2,mbs=1"};
  }
  return {};
}

class OptimizerLayoutTest : public testing::TestWithParam<std::tuple<Case, Model>> {
 protected:
  RunConfig Run(const std::string& layout) const {
    const RunConfig run = RunOf(std::get<0>(GetParam()), std::get<1>(GetParam()), layout);
    const Rule* broken = FirstBrokenRule(run);
    EXPECT_EQ(broken, nullptr) << layout << ": " << (broken == nullptr ? "" : broken->id);
    return run;
  }
  std::vector<std::string> Layouts() const { return LayoutsOf(std::get<1>(GetParam())); }
};

TEST_P(OptimizerLayoutTest, TrainsAlikeWithinTheMemoryOfTheDryRun) {
  const RunConfig alone = Run("dp=1,mbs=4");
  const auto source = MakeSyntheticSource(alone.model.vocab_size, /*seed=*/5);
  const TrainedLosses expected = TrainOnRanks(alone, *source, 5);
  EXPECT_EQ(expected.peak_bytes, DryRunPeaks(alone, *source));
  EXPECT_LT(expected.losses.back(), expected.losses.front() + 0.5);
  for (const std::string& layout : Layouts()) {
    SCOPED_TRACE(layout);
    const RunConfig run = Run(layout);
    const TrainedLosses actual = TrainOnRanks(run, *source, 5);
    ExpectSameTraining(actual, expected, std::get<0>(GetParam()).tolerance);
    EXPECT_EQ(actual.peak_bytes, DryRunPeaks(run, *source));
  }
}

TEST_P(OptimizerLayoutTest, CostsTheSameInBothTiers) {
  const RunConfig alone = Run("dp=1,mbs=4");
  if (alone.layout.numerics.precision != Precision::kFp32) return;  // a cpu has no rate of others
  const Cluster cluster = GenericCpu();
  ClosedFormEstimator estimator(alone.model, alone.sequence_length, cluster);
  for (const std::string& layout : Layouts()) {
    SCOPED_TRACE(layout);
    ExpectSameStages(estimator, Run(layout), cluster);
    // The estimator tells optimizers apart.
    RunConfig other = Run(layout);
    other.optimizer.kind =
        alone.optimizer.kind == OptimizerKind::kSgd ? OptimizerKind::kMuon : OptimizerKind::kSgd;
    ExpectSameStages(estimator, other, cluster);
  }
}

TEST_P(OptimizerLayoutTest, GoesOnFromACheckpointOfAnotherLayout) {
  const std::string folder = ScratchFolder() + "/checkpoint";
  const RunConfig first = Run(Layouts().back());
  const RunConfig second = Run(Layouts().front());
  const auto source = MakeSyntheticSource(first.model.vocab_size, /*seed=*/5);
  const WholeModelDeclaration whole = DeclareWholeModel(first.model);
  CheckpointWriter writer(folder, {.run = first, .step = 3, .samples = 3 * first.global_batch},
                          StoredParameters(first, whole.parameters));
  std::vector<double> expected;
  RunRanks(first, [&](Rank& rank) {
    Trainer trainer(first, rank.parallel(), rank.device());
    for (int64_t step = 0; step < 3; ++step) trainer.Step(*source, step);
    WriteState(trainer, writer);
    for (int64_t step = 3; step < 6; ++step) {
      const StepResult result = trainer.Step(*source, step);
      if (rank.index() == 0) expected.push_back(result.loss);
    }
  });
  writer.Finish();
  const CheckpointReader reader(folder);
  RunRanks(second, [&](Rank& rank) {
    Trainer trainer(second, rank.parallel(), rank.device());
    ReadState(trainer, reader);
    for (int64_t step = 3; step < 6; ++step) {
      const double loss = trainer.Step(*source, step).loss;
      const double uninterrupted = expected[static_cast<size_t>(step - 3)];
      EXPECT_NEAR(loss, uninterrupted, 2 * std::get<0>(GetParam()).tolerance * uninterrupted)
          << "step " << step;
    }
  });
}

std::string LayoutCaseName(const testing::TestParamInfo<std::tuple<Case, Model>>& info) {
  constexpr const char* kModels[] = {"dense", "copied_heads", "experts"};
  return fmt::format("{}_{}", std::get<0>(info.param).name,
                     kModels[static_cast<size_t>(std::get<1>(info.param))]);
}

INSTANTIATE_TEST_SUITE_P(Cases, OptimizerLayoutTest,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(Model::kDense, Model::kCopiedHeads,
                                                          Model::kExperts)),
                         LayoutCaseName);

// Matrices of layers take Muon; tables, the output projection and vectors take AdamW.
TEST(MuonTest, LeavesTablesAndVectorsToAdamW) {
  RunConfig run = SmallExpertRun(/*llama=*/true);
  run.optimizer.kind = OptimizerKind::kMuon;
  const WholeModelDeclaration whole = DeclareWholeModel(run.model);
  for (const StoredParameter& each : StoredParameters(run, whole.parameters)) {
    const std::string name = each.spec->name;
    const bool table = name.starts_with("embedding") || name.starts_with("output_layer");
    const std::vector<std::string> adam = {"m", "v"};
    EXPECT_EQ(each.slots == adam, table || !each.spec->is_matrix) << name;
    EXPECT_EQ(each.slots == std::vector<std::string>{"momentum"}, !table && each.spec->is_matrix)
        << name;
  }
}

}  // namespace
}  // namespace trimtab
