// Chunks bring together and add up what whole collectives do, and are under way beside the
// products.
#include "engine/layers/linear/tp_overlap.h"

#include <gtest/gtest.h>

#include <functional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "engine/config/model/model_config.h"
#include "engine/layers/linear/linear.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {
namespace {

constexpr int64_t kColumns = 3;

ModelConfig Model() {
  ModelConfig model;
  model.hidden_size = kColumns;
  return model;
}

LayerContext ContextOf(const ParallelContext& parallel, const ModelConfig& model, Device& device) {
  return {.device = device, .parallel = parallel, .model = model, .micro_batch = 2, .sequence = 12};
}

/// Every element different, on every rank.
Tensor Numbers(const LayerContext& context, int64_t rows) {
  Tensor tensor = context.New({rows, kColumns}, MemoryTag::kActivations);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.f32()[i] = static_cast<float>(1000 * context.parallel.tp_rank + i);
  }
  return tensor;
}

void ExpectEqual(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.shape(), expected.shape());
  for (int64_t i = 0; i < actual.numel(); ++i) {
    ASSERT_EQ(actual.f32()[i], expected.f32()[i]) << "element " << i;
  }
}

class TpOverlap : public testing::TestWithParam<const char*> {
 protected:
  /// Runs `body` on every rank of the layout.
  static void OnRanks(const std::function<void(const LayerContext& context)>& body) {
    const ModelConfig model = Model();
    RunInprocRanks(ParseLayout(GetParam(), 0), [&](ParallelContext& parallel) {
      const std::unique_ptr<Device> device = MakeCpuDevice(1);
      body(ContextOf(parallel, model, *device));
      EXPECT_EQ(device->memory().current_total(), 0);
    });
  }
};

TEST_P(TpOverlap, GathersEveryRowOnce) {
  OnRanks([](const LayerContext& context) {
    if (!context.sequence_parallel()) return;
    const Tensor x = Numbers(context, context.rows());
    Tensor gathered = context.New({context.tokens(), kColumns}, MemoryTag::kWorkspace);
    std::vector<int> seen(static_cast<size_t>(context.tokens()));
    GatherInChunks(context, x, [&](const Tensor& rows, const RowChunk& chunk) {
      SpreadRows(rows, chunk, gathered);
      ExpectEqual(CollectRows(context, gathered, chunk), rows);
      for (int64_t i = 0; i < chunk.count(); ++i) {
        ++seen[static_cast<size_t>(chunk.first + i / chunk.rows * chunk.stride + i % chunk.rows)];
      }
    });
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
    ExpectEqual(gathered, GatherRows(context, x));
  });
}

TEST_P(TpOverlap, SumsAsTheWholeDoes) {
  OnRanks([](const LayerContext& context) {
    const Tensor partial = Numbers(context, context.tokens());
    ChunkedReduction reduction(context, kColumns, MemoryTag::kWorkspace,
                               [&](const RowChunk& chunk, Tensor& rows) {
                                 Copy(CollectRows(context, partial, chunk), rows);
                               });
    const Tensor sum = reduction.Take();
    ExpectEqual(sum, ReduceRows(context, partial, MemoryTag::kWorkspace));
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, TpOverlap,
                         testing::Values("tp=2,sp=1,tp_overlap_chunks=2",
                                         "tp=2,sp=1,tp_overlap_chunks=3",
                                         "tp=4,sp=1,tp_overlap_chunks=6",
                                         "tp=2,tp_overlap_chunks=4", "tp=3,tp_overlap_chunks=2"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) {
                             if (c == '=' || c == ',') c = '_';
                           }
                           return name;
                         });

/// Notes how many messages are under way at every product.
class ProductsListener final : public Recorder {
 public:
  void BeginOp(const OpRecord& op) override {
    if (op.kind == OpKind::kGemm) under_way.push_back(messages_);
  }
  void BeginComm(const CommRecord& message) override {
    messages_ += message.asynchronous() ? 1 : 0;
  }
  void BeginWait(const CommRecord&) override { --messages_; }
  void End() override {}

  std::vector<int> under_way;

 private:
  int messages_ = 0;
};

/// What is under way at the products of a layer on meta, forward and backward.
template <typename Linear>
std::pair<std::vector<int>, std::vector<int>> UnderWay(const char* layout, const Linear& declare) {
  const ModelConfig model = Model();
  const std::unique_ptr<Device> device = MakeMetaDevice(1);
  const ParallelContext parallel = MakeMetaContext(ParseLayout(layout, 0), 0);
  const LayerContext context = ContextOf(parallel, model, *device);
  ParameterStore store;
  const auto linear = declare(store, context);
  store.Allocate(*device, DType::kF32, DType::kF32);
  ProductsListener forward;
  device->set_recorder(&forward);
  LinearSaved saved;
  const auto columns = [&](int64_t rows, int64_t count) {
    return context.New({rows, count}, MemoryTag::kActivations);
  };
  const bool row = std::is_same_v<std::decay_t<decltype(linear)>, RowParallelLinear>;
  const int64_t inside = context.tokens();
  const Tensor x = row ? columns(inside, 4 / context.tp()) : columns(context.rows(), 4);
  const Tensor y = linear.Forward(context, x, MemoryTag::kActivations, saved);
  ProductsListener backward;
  device->set_recorder(&backward);
  linear.Backward(context, saved, y, /*accumulate=*/false);
  device->set_recorder(nullptr);
  return {forward.under_way, backward.under_way};
}

TEST(TpOverlapProgram, OneMessageIsUnderWayBesideEachProduct) {
  const auto column = [](ParameterStore& store, const LayerContext& context) {
    return ColumnParallelLinear(store, context, "column", 4, {6}, /*bias=*/false, 0.02);
  };
  const auto row = [](ParameterStore& store, const LayerContext& context) {
    return RowParallelLinear(store, context, "row", 4, 6, /*bias=*/false, 0.02);
  };
  using Counts = std::vector<int>;
  // Of three chunks: the next one is gathered, or the one before reduced.
  auto [forward, backward] = UnderWay("tp=2,sp=1,tp_overlap_chunks=3", column);
  EXPECT_EQ(forward, (Counts{1, 1, 0}));
  EXPECT_EQ(backward, (Counts{1, 2, 2, 1}))
      << "the input is gathered; at the end its gradient is under way beside the weight's";
  std::tie(forward, backward) = UnderWay("tp=2,sp=1,tp_overlap_chunks=3", row);
  EXPECT_EQ(forward, (Counts{0, 1, 1}));
  EXPECT_EQ(backward, (Counts{1, 1, 0, 0})) << "the weight's gradient comes last";
  std::tie(forward, backward) = UnderWay("tp=2,tp_overlap_chunks=3", column);
  EXPECT_EQ(forward, (Counts{0})) << "nothing to gather";
  EXPECT_EQ(backward, (Counts{0, 1, 1, 1}));
  std::tie(forward, backward) = UnderWay("tp=2,tp_overlap_chunks=3", row);
  EXPECT_EQ(forward, (Counts{0, 1, 1}));
  EXPECT_EQ(backward, (Counts{0, 0})) << "nothing to gather";
}

}  // namespace
}  // namespace trimtab
