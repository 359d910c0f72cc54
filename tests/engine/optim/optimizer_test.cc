#include "engine/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>

#include "engine/ops/optimizer/adamw.h"

namespace trimtab {
namespace {

ParameterSpec Matrix(const std::string& name, int64_t rows, int64_t columns) {
  return {.name = name,
          .rows = rows,
          .columns = columns,
          .init = InitKind::kNormal,
          .init_std = 0.02,
          .partition = WholePartition(rows, columns)};
}

/// A store with its optimizer, as rank `dp_rank` of a layout.
class Fixture {
 public:
  explicit Fixture(const std::string& layout, int dp_rank = 0, const OptimizerConfig& config = {})
      : device_(MakeCpuDevice(1)), context_(MakeMetaContext(ParseLayout(layout, 0), dp_rank)) {
    store_.Declare(Matrix("a", 7, 30));
    store_.Declare(Matrix("b", 5, 64));
    shards_.emplace(context_, store_, *device_);
    optimizer_.emplace(config, context_, *shards_);
  }

  ParameterStore& store() { return store_; }
  ParameterShards& shards() { return *shards_; }
  Optimizer& optimizer() { return *optimizer_; }
  MemoryTracker& memory() { return device_->memory(); }

 private:
  std::unique_ptr<Device> device_;
  ParallelContext context_;
  ParameterStore store_;
  std::optional<ParameterShards> shards_;
  std::optional<Optimizer> optimizer_;
};

std::vector<float> Normals(int64_t count, float scale) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

class OptimizerStateTest : public testing::TestWithParam<const char*> {};

// Whatever the weights are stored in, their fp32 values survive exactly: that is what masters are.
TEST_P(OptimizerStateTest, WeightsKeepTheirFp32Values) {
  Fixture fixture(GetParam());
  const std::vector<float> values = Normals(200, 0.1f);
  fixture.shards().WriteWeights(10, values);
  std::vector<float> back(values.size());
  fixture.shards().ReadWeights(10, back);
  EXPECT_EQ(back, values);
  std::vector<float> stored(values.size());
  CopyToHost(fixture.shards().weights().Slice(10, {200}), stored);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(stored[i], values[i], std::abs(values[i]) / 256)
        << "the weight is the rounded value";
  }
}

// What a checkpoint reads and writes again gives the same checkpoint.
TEST_P(OptimizerStateTest, MomentsSurviveACheckpoint) {
  Fixture fixture(GetParam());
  const Parameter& parameter = *fixture.store().parameters()[1];
  const int64_t begin = parameter.offset;
  std::vector<float> values = Normals(320, 1e-4f);
  values[5] = 0.0f;
  values[7] = 1e-9f;
  Optimizer& optimizer = fixture.optimizer();
  optimizer.WriteState(parameter, 1, begin, values);
  std::vector<float> once(values.size());
  optimizer.ReadState(parameter, 1, begin, once);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(once[i], values[i], std::abs(values[i]) / 256 + 1e-11) << i;
  }
  optimizer.WriteState(parameter, 1, begin, once);
  std::vector<float> twice(values.size());
  optimizer.ReadState(parameter, 1, begin, twice);
  EXPECT_EQ(twice, once);
  optimizer.ReadState(parameter, 0, begin, once);
  EXPECT_EQ(once, std::vector<float>(values.size(), 0.0f)) << "the other moment";
}

INSTANTIATE_TEST_SUITE_P(States, OptimizerStateTest,
                         testing::Values("precision=fp32", "precision=bf16",
                                         "precision=bf16,master=remainder,moments=bf16",
                                         "precision=fp16,moments=fp16", "precision=fp8"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           }
                           return name;
                         });

class ShardedOptimizerTest : public testing::TestWithParam<int> {};

TEST_P(ShardedOptimizerTest, ShardsHoldTheirOwnMasters) {
  Fixture fixture(fmt::format("dp=2,zero={},precision=bf16", GetParam()), /*dp_rank=*/1);
  ParameterShards& shards = fixture.shards();
  ASSERT_EQ(shards.buckets().size(), 1u);
  const OwnedPart part = shards.PartOf(shards.buckets()[0]);
  EXPECT_EQ(part.begin % kParameterAlignment, 0);
  EXPECT_EQ(part.begin + part.numel, fixture.store().numel());
  const std::vector<float> values = Normals(fixture.store().numel(), 1.0f);
  shards.WriteWeights(0, values);
  std::vector<float> own(static_cast<size_t>(part.numel));
  shards.ReadWeights(part.begin, own);
  EXPECT_TRUE(std::equal(own.begin(), own.end(), values.begin() + part.begin));
}

INSTANTIATE_TEST_SUITE_P(Stages, ShardedOptimizerTest, testing::Values(1, 2, 3));

// Bytes per parameter of state beside weights and gradients.
TEST(OptimizerTest, TakesTheBytesOfItsState) {
  const std::pair<const char*, double> cases[] = {
      {"precision=fp32", 8},
      {"precision=bf16", 12},
      {"precision=bf16,master=remainder,moments=bf16", 6},
      {"precision=bf16,moments=fp16", 4 + 4 + 8.0 / kMomentBlock},
  };
  const double scalars = (2 + 2 + kUpdateScalarCount) * 4;
  for (const auto& [layout, bytes] : cases) {
    Fixture fixture(layout);
    const auto tag = static_cast<size_t>(MemoryTag::kOptimizer);
    EXPECT_EQ(static_cast<double>(fixture.memory().current_by_tag()[tag]),
              bytes * static_cast<double>(fixture.store().numel()) + scalars)
        << layout;
  }
}

// One step of bf16 weights with masters moves the masters as fp32 weights would move.
TEST(OptimizerTest, MastersFollowFp32Weights) {
  for (const char* layout : {"precision=bf16", "precision=bf16,master=remainder"}) {
    Fixture exact("precision=fp32");
    Fixture reduced(layout);
    const int64_t numel = exact.store().numel();
    const std::vector<float> weights = Normals(numel, 0.1f);
    std::vector<float> gradients = Normals(numel, 0.01f);
    for (Fixture* fixture : {&exact, &reduced}) {
      fixture->shards().WriteWeights(0, weights);
      Tensor all = fixture->shards().gradients().Slice(0, {numel});
      CopyFromHost(all, gradients);
      for (int64_t step = 0; step < 3; ++step) {
        fixture->optimizer().Prepare(1e-3, step, 1.0);
        fixture->optimizer().Update();
        EXPECT_TRUE(fixture->optimizer().Outcome().applied);
      }
    }
    std::vector<float> expected(static_cast<size_t>(numel));
    std::vector<float> actual(static_cast<size_t>(numel));
    exact.shards().ReadWeights(0, expected);
    reduced.shards().ReadWeights(0, actual);
    EXPECT_EQ(actual, expected) << layout;
  }
}

TEST(OptimizerTest, AnInfiniteGradientChangesNothing) {
  Fixture fixture("precision=fp16");
  const int64_t numel = fixture.store().numel();
  const std::vector<float> weights = Normals(numel, 0.1f);
  fixture.shards().WriteWeights(0, weights);
  std::vector<float> gradients(static_cast<size_t>(numel), 0.01f);
  gradients[3] = INFINITY;
  Tensor all = fixture.shards().gradients().Slice(0, {numel});
  CopyFromHost(all, gradients);
  fixture.optimizer().Prepare(1e-3, 0, 1024.0);
  fixture.optimizer().Update();
  EXPECT_FALSE(fixture.optimizer().Outcome().applied);
  std::vector<float> after(weights.size());
  fixture.shards().ReadWeights(0, after);
  EXPECT_EQ(after, weights);
}

/// Weights after a step with gradients that are all 1, from weights that are all 1.
std::vector<float> AfterAStep(Fixture& fixture) {
  const int64_t numel = fixture.store().numel();
  fixture.shards().WriteWeights(0, std::vector<float>(static_cast<size_t>(numel), 1.0f));
  Tensor all = fixture.shards().gradients().Slice(0, {numel});
  CopyFromHost(all, std::vector<float>(static_cast<size_t>(numel), 1.0f));
  fixture.optimizer().Prepare(0.01, 0, 1.0);
  fixture.optimizer().Update();
  std::vector<float> weights(static_cast<size_t>(numel));
  fixture.shards().ReadWeights(0, weights);
  return weights;
}

// AdamW's first step is the learning rate, whatever the gradient, and decay.
TEST(OptimizerTest, GroupsHaveALearningRateAndADecayOfTheirOwn) {
  OptimizerConfig config;
  config.weight_decay = 0.5;
  config.groups = {{.match = {"b*"}, .learning_rate_factor = 0.1, .weight_decay = false},
                   {.match = {"*"}, .learning_rate_factor = 2}};
  Fixture fixture("dp=1", 0, config);
  const std::vector<float> weights = AfterAStep(fixture);
  const auto at = [&](size_t parameter) {
    return weights[static_cast<size_t>(fixture.store().parameters()[parameter]->offset)];
  };
  EXPECT_NEAR(at(0), 1 - 0.02 - 0.02 * 0.5, 1e-5) << "the second group, as a matrix decays";
  EXPECT_NEAR(at(1), 1 - 0.001, 1e-6) << "the first group that matches";
}

// Queries, keys and values are matrices of their own, wherever blocks of 8-bit momentum end.
TEST(OptimizerTest, MuonsBlocksEndWithItsMatrices) {
  const auto device = MakeCpuDevice(1);
  const ParallelContext context = MakeMetaContext(ParseLayout("moments=int8", 0), 0);
  ParameterStore store;
  ParameterSpec spec = Matrix("qkv", 11, 30);
  spec.multiplied = 1;
  spec.partition = RowBlocksPartition({5, 3, 3}, 30, 1, 0);
  const Parameter& parameter = store.Declare(std::move(spec));
  ParameterShards shards(context, store, *device);
  Optimizer optimizer({.kind = OptimizerKind::kMuon}, context, shards);
  std::vector<float> gradients(11 * 30);
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = i < 150 ? 1.0f : 1e-4f;
  Tensor all = shards.gradients().Slice(0, {11 * 30});
  CopyFromHost(all, gradients);
  optimizer.Prepare(1e-3, 0, 1.0);
  optimizer.Update();
  std::vector<float> momentum(gradients.size());
  optimizer.ReadState(parameter, 0, 0, momentum);
  const float norm = static_cast<float>(optimizer.Outcome().grad_norm);
  for (size_t i = 0; i < momentum.size(); ++i) {
    EXPECT_NEAR(momentum[i] * norm, gradients[i], 1e-5f * gradients[i]) << i;
  }
}

TEST(SettingOf, VectorsDecayOnlyWhereAGroupSaysSo) {
  const OptimizerConfig plain;
  ParameterSpec vector = Matrix("layers.0.norm.weight", 8, 1);
  vector.is_matrix = false;
  EXPECT_EQ(SettingOf(plain, vector).weight_decay, 0.0f);
  EXPECT_EQ(SettingOf(plain, Matrix("layers.0.fc.weight", 8, 8)).weight_decay, 0.1f);
  OptimizerConfig all = plain;
  all.groups = {{.match = {"*.norm.*", "nothing"}, .weight_decay = true}};
  EXPECT_EQ(SettingOf(all, vector).weight_decay, 0.1f);
  EXPECT_EQ(SettingOf(all, vector).learning_rate_factor, 1.0f);
}

}  // namespace
}  // namespace trimtab
