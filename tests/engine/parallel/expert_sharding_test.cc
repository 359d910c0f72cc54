// A layer with experts, whose gradients are written by hand: experts are summed over, and sharded
// among, the ranks that hold the same ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "engine/parallel/sharded_data_parallel.h"

namespace trimtab {
namespace {

constexpr int64_t kColumns = 50;  // leaves gaps
constexpr int kMicroBatches = 3;

/// A layer of a matrix, experts of a matrix and a bias, and a matrix behind them.
struct Layer {
  Layer() {
    store.BeginUnit();
    before = Declare("before", ParallelGrid::kDense, true);
    experts = Declare("experts", ParallelGrid::kExperts, true);
    bias = Declare("bias", ParallelGrid::kExperts, false);
    after = Declare("after", ParallelGrid::kDense, true);
  }

  Parameter* Declare(const std::string& name, ParallelGrid grid, bool is_matrix) {
    const int64_t columns = is_matrix ? kColumns : 1;
    return &store.Declare({.name = name,
                           .rows = 3,
                           .columns = columns,
                           .is_matrix = is_matrix,
                           .grid = grid,
                           .partition = WholePartition(3, columns)});
  }

  ParameterStore store;
  Parameter* before = nullptr;
  Parameter* experts = nullptr;
  Parameter* bias = nullptr;
  Parameter* after = nullptr;
};

void Write(Tensor gradient, float value, bool accumulate) {
  for (int64_t i = 0; i < gradient.numel(); ++i) {
    gradient.f32()[i] = value + (accumulate ? gradient.f32()[i] : 0);
  }
}

TEST(ExpertUnits, BelongToTheUnitThatUsesThem) {
  Layer layer;
  ASSERT_EQ(layer.store.units().size(), 2u);
  EXPECT_EQ(layer.before->unit, 0u);
  EXPECT_EQ(layer.after->unit, 0u);
  EXPECT_EQ(layer.experts->unit, 1u);
  EXPECT_EQ(layer.bias->unit, 1u);
  EXPECT_EQ(layer.store.units()[0].also_uses, std::vector<size_t>{1});
  EXPECT_EQ(layer.store.units()[1].users, 1);
  layer.store.BeginUnit();
  EXPECT_EQ(layer.store.current_unit(), 2u);
  EXPECT_EQ(layer.Declare("next", ParallelGrid::kExperts, true)->unit, 3u) << "another layer's";
}

class ExpertSharding : public testing::TestWithParam<const char*> {
 protected:
  static ParallelConfig Layout() { return ParseLayout(GetParam(), 0); }

  /// Runs a step of hand-made gradients on every rank, with `backward` for the micro batches.
  using Backward = std::function<void(Layer&, ShardedDataParallel&, int rank)>;
  static void ExpectSums(const Backward& backward) {
    const ParallelConfig layout = Layout();
    std::mutex mutex;
    std::map<std::pair<std::string, int>, int64_t> seen;  // elements, by name and ep rank
    RunInprocRanks(layout, [&](ParallelContext& context) {
      const std::unique_ptr<Device> device = MakeCpuDevice(1);
      Layer layer;
      ShardedDataParallel parallel(context, layer.store, *device, nullptr);
      const int64_t held = device->memory().current_total();
      for (int step = 0; step < 2; ++step) {
        backward(layer, parallel, context.rank);
        parallel.FinishStep();
      }
      EXPECT_EQ(device->memory().current_total(), held) << "nothing is left over";

      const std::lock_guard lock(mutex);
      for (const Parameter* parameter : layer.store.parameters()) {
        const bool expert = parameter->spec.grid == ParallelGrid::kExperts;
        int ranks = 0;  // the sum of rank + 1 over the ranks that hold the parameter
        for (const int member : GroupMembers(
                 layout, expert ? GroupKind::kExpertData : GroupKind::kData, context.rank)) {
          ranks += member + 1;
        }
        const OwnedPart part =
            parallel.shards().Within({parameter->offset, parameter->offset + parameter->numel()});
        if (part.numel == 0) continue;
        seen[{parameter->spec.name, expert ? context.ep_rank : 0}] += part.numel;
        const Tensor gradients = parallel.shards().Gradients(part);
        for (int64_t i = 0; i < part.numel; ++i) {
          ASSERT_EQ(gradients.f32()[i], static_cast<float>(6 * ranks)) << parameter->spec.name;
        }
      }
      for (const ParameterUnit& unit : layer.store.units()) {
        for (const FlatRange& gap : unit.gaps) {
          const OwnedPart part = parallel.shards().Within(gap);
          if (part.numel == 0) continue;
          const Tensor gradients = parallel.shards().Gradients(part);
          for (int64_t i = 0; i < part.numel; ++i) ASSERT_EQ(gradients.f32()[i], 0.0f);
        }
      }
    });
    // As often as there are replicas of it.
    const auto copies = [&layout](int64_t ranks, int64_t shard) {
      if (layout.zero == 0) return ranks;
      return shard == 0 ? 1 : ranks / shard;
    };
    const int64_t dense = copies(layout.dp, layout.shard);
    const int64_t experts = copies(layout.edp(), layout.expert_shard());
    for (const char* name : {"before", "after"}) {
      EXPECT_EQ((seen[{name, 0}]), 3 * kColumns * dense);
    }
    for (int ep = 0; ep < layout.ep; ++ep) {
      EXPECT_EQ((seen[{"experts", ep}]), 3 * kColumns * experts);
      EXPECT_EQ((seen[{"bias", ep}]), 3 * experts);
    }
  }
};

TEST_P(ExpertSharding, GradientsAreSummedOverTheirRanks) {
  ExpectSums([](Layer& layer, ShardedDataParallel& parallel, int rank) {
    for (int m = 0; m < kMicroBatches; ++m) {
      parallel.StartBackward(m == 0, m + 1 == kMicroBatches);
      parallel.BeginGradients(0, GradientPart::kAll);
      for (Parameter* each : layer.store.parameters()) {
        Write(each->gradient, static_cast<float>((rank + 1) * (m + 1)), parallel.accumulates());
      }
      parallel.EndGradients(0, GradientPart::kAll);
      parallel.FinishBackward();
    }
  });
}

TEST_P(ExpertSharding, GradientsInTwoPartsAreSummedToo) {
  ExpectSums([](Layer& layer, ShardedDataParallel& parallel, int rank) {
    const auto part = [&](int m, GradientPart which) {
      parallel.StartBackward(m == 0, m + 1 == kMicroBatches);
      parallel.BeginGradients(0, which);
      for (Parameter* each : layer.store.parameters()) {
        if (each->spec.is_matrix != (which == GradientPart::kMatrices)) continue;
        Write(each->gradient, static_cast<float>((rank + 1) * (m + 1)), parallel.accumulates());
      }
      parallel.EndGradients(0, which);
      parallel.FinishBackward();
    };
    for (const int m : {0, 1}) part(m, GradientPart::kVectors);
    part(0, GradientPart::kMatrices);
    part(2, GradientPart::kVectors);
    for (const int m : {1, 2}) part(m, GradientPart::kMatrices);
  });
}

TEST_P(ExpertSharding, WeightsAreThereWhileTheyAreUsed) {
  RunInprocRanks(Layout(), [](ParallelContext& context) {
    const std::unique_ptr<Device> device = MakeCpuDevice(1);
    Layer layer;
    ShardedDataParallel parallel(context, layer.store, *device, nullptr);
    const int64_t held = device->memory().current_total();
    // Each rank updates its part: element i of rank e's experts becomes i + 1000 e.
    const auto value = [&context](ParallelGrid grid, int64_t i) {
      return static_cast<float>(i + (grid == ParallelGrid::kExperts ? 1000 * context.ep_rank : 0));
    };
    for (const Bucket& bucket : parallel.shards().buckets()) {
      const OwnedPart part = parallel.shards().PartOf(bucket);
      Tensor weights = parallel.shards().Weights(part);
      for (int64_t i = 0; i < part.numel; ++i) {
        weights.f32()[i] = value(bucket.grid, part.begin + i);
      }
    }
    parallel.GatherUpdated();
    parallel.BeginForward(0, std::nullopt);
    for (const Parameter* each : layer.store.parameters()) {
      ASSERT_TRUE(each->weight.defined()) << each->spec.name;
      for (int64_t i = 0; i < each->numel(); ++i) {
        ASSERT_EQ(each->weight.f32()[i], value(each->spec.grid, each->offset + i));
      }
    }
    parallel.EndForward(0);
    EXPECT_EQ(device->memory().current_total(), held);
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, ExpertSharding,
                         testing::Values("dp=4,ep=2", "dp=4,ep=4", "dp=4,ep=2,zero=1",
                                         "dp=4,ep=2,zero=2", "dp=4,ep=2,zero=3", "dp=4,ep=4,zero=1",
                                         "dp=4,ep=4,zero=2", "dp=4,ep=4,zero=3",
                                         "dp=8,ep=2,zero=3,shard=4", "dp=8,ep=2,zero=2,shard=2",
                                         "dp=8,ep=4,zero=3,shard=4", "dp=8,ep=2,zero=1,shard=4"),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace trimtab
