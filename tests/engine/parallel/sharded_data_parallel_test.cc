// A model of two matrices, whose gradients are written by hand, over stages and ranks.
#include "engine/parallel/sharded_data_parallel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <numeric>

namespace trimtab {
namespace {

constexpr int64_t kColumns = 50;  // leaves gaps

/// A store of a table that the later units share, and two units.
struct Model {
  Model() {
    table = Declare("table");
    store.BeginUnit().AlsoUse(*table);
    first = Declare("first");
    store.BeginUnit().AlsoUse(*table);
    last = Declare("last");
  }

  Parameter* Declare(const std::string& name) {
    return &store.Declare(
        {.name = name, .rows = 3, .columns = kColumns, .partition = WholePartition(3, kColumns)});
  }

  ParameterStore store;
  Parameter* table = nullptr;
  Parameter* first = nullptr;
  Parameter* last = nullptr;
};

void Write(Tensor gradient, float value, bool accumulate) {
  for (int64_t i = 0; i < gradient.numel(); ++i) {
    gradient.f32()[i] = value + (accumulate ? gradient.f32()[i] : 0);
  }
}

/// The backward pass of micro batch `m` on rank `rank`: every gradient is told apart by its value.
void Backward(Model& model, ShardedDataParallel& parallel, int rank, int m, int micro_batches) {
  parallel.StartBackward(m == 0, m + 1 == micro_batches);
  const bool accumulate = parallel.accumulates();
  const float scale = static_cast<float>((rank + 1) * (m + 1));
  parallel.BeginGradients(2, GradientPart::kAll);
  Write(model.last->gradient, scale, accumulate);
  Write(model.table->gradient, 10 * scale, accumulate);
  parallel.EndGradients(2, GradientPart::kAll);
  parallel.BeginGradients(1, GradientPart::kAll);
  Write(model.first->gradient, 100 * scale, accumulate);
  Write(model.table->gradient, 1000 * scale, /*accumulate=*/true);
  parallel.EndGradients(1, GradientPart::kAll);
  parallel.FinishBackward();
}

/// A model of one unit: a matrix, and a vector after it.
struct Layer {
  Layer() {
    matrix = &store.Declare({.name = "matrix",
                             .rows = 3,
                             .columns = kColumns,
                             .partition = WholePartition(3, kColumns)});
    vector = &store.Declare(
        {.name = "vector", .rows = 5, .is_matrix = false, .partition = WholePartition(5, 1)});
  }

  ParameterStore store;
  Parameter* matrix = nullptr;
  Parameter* vector = nullptr;
};

/// Sharding stage, ranks, and of these those that share a replica.
class StagesTest : public testing::TestWithParam<std::tuple<int, int, int>> {
 protected:
  static ParallelConfig Layout() {
    const auto& [zero, dp, shard] = GetParam();
    return ParseLayout(fmt::format("dp={},zero={},shard={}", dp, zero, shard), 0);
  }
};

TEST_P(StagesTest, GradientsAreSummedOverRanksAndMicroBatches) {
  constexpr int kMicroBatches = 3;
  const ParallelConfig layout = Layout();
  const auto dp = static_cast<int>(layout.dp);
  std::mutex mutex;
  std::map<std::string, int64_t> seen;
  RunInprocRanks(layout, [&](ParallelContext& context) {
    const std::unique_ptr<Device> device = MakeCpuDevice(1);
    Model model;
    ShardedDataParallel parallel(context, model.store, *device, nullptr);
    const int64_t held = device->memory().current_total();
    for (int step = 0; step < 2; ++step) {
      for (int m = 0; m < kMicroBatches; ++m) {
        Backward(model, parallel, context.rank, m, kMicroBatches);
      }
      parallel.FinishStep();
    }
    EXPECT_EQ(device->memory().current_total(), held) << "nothing is left over";

    const float all = static_cast<float>(dp * (dp + 1) / 2 * 6);  // of ranks, of micro batches
    const std::lock_guard lock(mutex);
    for (const auto& [parameter, factor] :
         {std::pair{model.table, 1010.0f}, {model.first, 100.0f}, {model.last, 1.0f}}) {
      const FlatRange range = {parameter->offset, parameter->offset + parameter->numel()};
      const OwnedPart part = parallel.shards().Within(range);
      if (part.numel == 0) continue;
      seen[parameter->spec.name] += part.numel;
      const Tensor gradients = parallel.shards().Gradients(part);
      for (int64_t i = 0; i < part.numel; ++i) ASSERT_EQ(gradients.f32()[i], factor * all);
    }
    // What no parameter takes adds nothing to the norm.
    for (const ParameterUnit& unit : model.store.units()) {
      ASSERT_FALSE(unit.gaps.empty());
      for (const FlatRange& gap : unit.gaps) {
        const OwnedPart part = parallel.shards().Within(gap);
        if (part.numel == 0) continue;
        const Tensor gradients = parallel.shards().Gradients(part);
        for (int64_t i = 0; i < part.numel; ++i) ASSERT_EQ(gradients.f32()[i], 0.0f);
      }
    }
  });
  const int64_t copies = layout.zero == 0 ? dp : layout.shard == 0 ? 1 : dp / layout.shard;
  for (const char* name : {"table", "first", "last"}) EXPECT_EQ(seen[name], 3 * kColumns * copies);
}

// The first parts of later micro batches come before the second parts of earlier ones.
TEST_P(StagesTest, GradientsInTwoPartsAreSummedToo) {
  const ParallelConfig layout = Layout();
  const auto dp = static_cast<int>(layout.dp);
  RunInprocRanks(layout, [&](ParallelContext& context) {
    const std::unique_ptr<Device> device = MakeCpuDevice(1);
    Layer layer;
    ShardedDataParallel parallel(context, layer.store, *device, nullptr);
    const int64_t held = device->memory().current_total();
    const auto part = [&](int m, GradientPart which) {
      parallel.StartBackward(m == 0, m == 2);
      parallel.BeginGradients(0, which);
      const Parameter& parameter = which == GradientPart::kVectors ? *layer.vector : *layer.matrix;
      Write(parameter.gradient, static_cast<float>((context.rank + 1) * (m + 1)),
            parallel.accumulates());
      parallel.EndGradients(0, which);
      parallel.FinishBackward();
    };
    for (int step = 0; step < 2; ++step) {
      for (const int m : {0, 1}) part(m, GradientPart::kVectors);
      part(0, GradientPart::kMatrices);
      part(2, GradientPart::kVectors);
      for (const int m : {1, 2}) part(m, GradientPart::kMatrices);
      parallel.FinishStep();
    }
    EXPECT_EQ(device->memory().current_total(), held) << "nothing is left over";
    const float all = static_cast<float>(dp * (dp + 1) / 2 * 6);
    for (const Parameter* parameter : layer.store.parameters()) {
      const FlatRange range = {parameter->offset, parameter->offset + parameter->numel()};
      const OwnedPart own = parallel.shards().Within(range);
      const Tensor gradients = own.numel == 0 ? Tensor() : parallel.shards().Gradients(own);
      for (int64_t i = 0; i < own.numel; ++i) ASSERT_EQ(gradients.f32()[i], all);
    }
  });
}

TEST_P(StagesTest, WeightsAreThereWhileTheyAreUsed) {
  for (const bool reshard : {true, false}) {
    ParallelConfig layout = Layout();
    layout.reshard_after_forward = reshard;
    RunInprocRanks(layout, [&](ParallelContext& context) {
      const std::unique_ptr<Device> device = MakeCpuDevice(1);
      Model model;
      ShardedDataParallel parallel(context, model.store, *device, nullptr);
      const int64_t held = device->memory().current_total();
      // Each rank updates its part: element i becomes i.
      for (const Bucket& bucket : parallel.shards().buckets()) {
        const OwnedPart part = parallel.shards().PartOf(bucket);
        Tensor weights = parallel.shards().Weights(part);
        std::iota(weights.f32(), weights.f32() + part.numel, static_cast<float>(part.begin));
      }
      parallel.GatherUpdated();
      const auto expect = [](const Parameter& parameter) {
        ASSERT_TRUE(parameter.weight.defined()) << parameter.spec.name;
        for (int64_t i = 0; i < parameter.numel(); ++i) {
          ASSERT_EQ(parameter.weight.f32()[i], static_cast<float>(parameter.offset + i));
        }
      };
      const bool kept = layout.zero < 3;
      parallel.BeginForward(1, 2);
      expect(*model.first);
      expect(*model.table);
      parallel.EndForward(1);
      EXPECT_EQ(model.first->weight.defined(), kept || !reshard);
      parallel.BeginForward(2, std::nullopt);
      expect(*model.last);
      expect(*model.table);
      parallel.BeginBackward(2, 1);
      expect(*model.last);
      parallel.EndBackward(2);
      EXPECT_EQ(model.last->weight.defined(), kept);
      parallel.BeginBackward(1, std::nullopt);
      expect(*model.first);
      expect(*model.table);
      parallel.EndBackward(1);
      EXPECT_EQ(device->memory().current_total(), held);
    });
  }
}

TEST(WeightGathererTest, KeepsWhatAPipelineHasGatheredToTheEndOfTheStep) {
  const ParallelConfig layout = ParseLayout("dp=2,pp=2,zero=3,reshard_after_forward=0", 0);
  RunInprocRanks(layout, [&](ParallelContext& context) {
    const std::unique_ptr<Device> device = MakeCpuDevice(1);
    Model model;
    ShardedDataParallel parallel(context, model.store, *device, nullptr);
    const int64_t held = device->memory().current_total();
    for (int step = 0; step < 2; ++step) {
      parallel.BeginForward(1, 2);
      const void* gathered = model.first->weight.raw();
      parallel.EndForward(1);
      parallel.BeginForward(2, std::nullopt);
      parallel.BeginBackward(2, 1);
      parallel.EndBackward(2);
      parallel.BeginBackward(1, std::nullopt);
      parallel.EndBackward(1);
      parallel.BeginForward(1, 2);
      EXPECT_EQ(model.first->weight.raw(), gathered) << "not gathered again";
      parallel.FinishStep();
      EXPECT_FALSE(model.first->weight.defined());
      EXPECT_EQ(device->memory().current_total(), held);
    }
  });
}

using Stage = std::tuple<int, int, int>;

std::vector<Stage> EveryStage() {
  std::vector<Stage> stages;
  for (const int zero : {0, 1, 2, 3}) {
    for (const int dp : {2, 3, 4}) stages.push_back({zero, dp, 0});
    if (zero == 0) continue;
    stages.push_back({zero, 4, 2});
    stages.push_back({zero, 6, 2});
    stages.push_back({zero, 6, 3});
  }
  return stages;
}

INSTANTIATE_TEST_SUITE_P(Stages, StagesTest, testing::ValuesIn(EveryStage()), [](const auto& test) {
  return fmt::format("zero{}_dp{}_shard{}", std::get<0>(test.param), std::get<1>(test.param),
                     std::get<2>(test.param));
});

}  // namespace
}  // namespace trimtab
