// What is put together of one layer of each kind is what the engine's whole model does in a step.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "cost_model/serving/serving_prediction.h"
#include "cost_model/serving/serving_work.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/device/record.h"
#include "engine/infer/executor/serving_model.h"
#include "tests/engine/train/families.h"

namespace trimtab {
namespace {

constexpr double kRelative = 1e-12;  // shares of attention that are put together again
constexpr int64_t kLength = 64;
constexpr int64_t kBlockSize = 4;

/// How many, by kind, ranks and bytes.
using Messages = std::map<std::tuple<CollectiveKind, int64_t, double>, double>;

struct Sums {
  double ops = 0;
  double product_flops = 0;
  double attention_flops = 0;
  double other_bytes = 0;  // that all but products move
  Messages messages{};     // but those between stages, and of logits
};

class Adder final : public Recorder {
 public:
  void EnterPiece(const PieceRecord& /*piece*/) override {}
  void BeginOp(const OpRecord& op) override {
    // What a product does beside its work is an op of its own in other engines.
    sums.ops += op.fused.bytes > 0 ? 2 : 1;
    sums.other_bytes += static_cast<double>(op.fused.bytes);
    switch (op.kind) {
      case OpKind::kGemm:
      case OpKind::kGroupedGemm:
      case OpKind::kGroupedPackedGemm:
        sums.product_flops += static_cast<double>(op.flops);
        return;
      case OpKind::kPagedAttention:
        sums.attention_flops += static_cast<double>(op.flops);
        break;
      default:
        break;
    }
    sums.other_bytes += static_cast<double>(op.bytes - op.fused.beside);
  }
  void BeginComm(const CommRecord& message) override { messages.push_back(message); }
  void BeginWait(const CommRecord& /*message*/) override {}
  void End() override {}

  Sums sums;
  std::vector<CommRecord> messages;
};

ServingConfig ConfigOf(const std::string& family, const char* layout) {
  ServingConfig config;
  config.model = FamilyRun(family).model;
  config.model.max_sequence_length = kLength;
  config.layout = ParseLayout(layout, 0);
  config.layout.numerics.precision = Precision::kBf16;
  config.weights = WeightFormat::kBf16;
  config.cache = DType::kBf16;
  config.device = DeviceKind::kCuda;
  config.block_size = kBlockSize;
  config.threads_per_rank = 1;
  return config;
}

StepPlan PlanOf(const ServingStep& step) {
  StepPlan plan;
  const auto add = [&plan](int64_t count, int64_t position) {
    const auto blocks = static_cast<size_t>(CeilDiv(position + count, kBlockSize));
    plan.sequences.push_back({.tokens = std::vector<int32_t>(static_cast<size_t>(count)),
                              .first_position = position,
                              .blocks = std::vector<int32_t>(blocks),
                              .logits = 1});
  };
  for (int64_t i = 0; i < step.sequences; ++i) add(1, step.context);
  for (int64_t i = 0; i < step.prompts; ++i) add(step.prompt_tokens, step.prompt_position);
  return plan;
}

/// Of the first rank of each stage, added up.
Sums OfTheWholeModel(const ServingConfig& config, const ServingStep& step) {
  const ParallelConfig layout = RunOf(config).layout;
  Sums all;
  for (int64_t stage = 0; stage < layout.pp; ++stage) {
    const auto device = MakeMetaDevice(/*threads=*/1, DeviceKind::kCuda);
    const auto rank = static_cast<int>(stage * layout.tp);
    const ParallelContext parallel =
        MakeMetaContext(layout, rank, config.model.kv_copies(layout.tp));
    ServingModel model(config, parallel, *device, /*source=*/nullptr);
    Adder adder;
    device->set_recorder(&adder);
    model.Run(PlanOf(step));
    device->set_recorder(nullptr);
    all.ops += adder.sums.ops;
    all.product_flops += adder.sums.product_flops;
    all.attention_flops += adder.sums.attention_flops;
    all.other_bytes += adder.sums.other_bytes;
    // Rows go from stage to stage (ServingSteps).
    std::vector<CommRecord> messages = adder.messages;
    const bool last = stage + 1 == layout.pp;
    const auto hops = std::erase_if(
        messages, [](const CommRecord& each) { return each.group == GroupKind::kPipeline; });
    EXPECT_EQ(hops, (last ? 0u : 1u) + (stage > 0 ? 1u : 0u));
    if (last && layout.tp > 1) {  // the last stage's ranks put the logits together
      EXPECT_EQ(messages.back().kind, CollectiveKind::kAllGather);
      messages.pop_back();
    }
    for (const CommRecord& each : messages) {
      ++all.messages[{each.kind, each.ranks, static_cast<double>(each.bytes)}];
    }
  }
  return all;
}

Sums PutTogether(const ServingConfig& config, const ServingStep& step) {
  ServingRecorder recorder(config.model, ServingLayoutOf(config));
  const ServingWork work = recorder.Record(step);
  Sums all = {.ops = work.ops,
              .attention_flops = work.attention_flops + work.decode_flops,
              .other_bytes = work.other_bytes + work.kv_values * SizeOf(DType::kBf16)};
  for (const ServingProduct& each : work.products) all.product_flops += each.count * each.flops;
  for (const ServingMessage& each : work.messages) {
    all.messages[{each.kind, each.ranks, each.bytes}] += each.count;
  }
  return all;
}

class ServingWholeStepTest : public testing::TestWithParam<std::string> {};

TEST_P(ServingWholeStepTest, IsWhatIsPutTogether) {
  int64_t layouts = 0;
  for (const char* layout :
       {"tp=1", "tp=2", "tp=4", "pp=2", "pp=3", "tp=2,pp=2", "tp=2,sp=1", "tp=4,sp=1,pp=2",
        "tp=2,sp=1,ep=2", "tp=2,sp=1,etp=2", "tp=4,sp=1,ep=2,etp=2,pp=2"}) {
    ServingConfig config = ConfigOf(GetParam(), layout);
    try {
      config = ResolveServing(config);
    } catch (const InfeasibleError&) {
      continue;  // experts need sequence parallelism
    }
    ++layouts;
    for (const ServingStep& step :
         {ServingStep{.prompts = 2, .prompt_tokens = 7, .prompt_position = 5},
          ServingStep{.sequences = 3, .context = 40, .prompts = 1, .prompt_tokens = 20},
          ServingStep{.sequences = 5, .context = 33}}) {
      SCOPED_TRACE(fmt::format("{}, {} rows", layout, step.tokens()));
      const Sums whole = OfTheWholeModel(config, step);
      const Sums made = PutTogether(config, step);
      EXPECT_EQ(made.ops, whole.ops);
      EXPECT_EQ(made.product_flops, whole.product_flops);
      EXPECT_EQ(made.messages, whole.messages);
      if (step.prompts > 0) {  // else reading the cache binds, and no operations are counted
        EXPECT_NEAR(made.attention_flops, whole.attention_flops, kRelative * whole.attention_flops);
      }
      // What decoding rows read and write of themselves is not counted either.
      if (step.sequences == 0) {
        EXPECT_EQ(made.other_bytes, whole.other_bytes);
      }
    }
  }
  EXPECT_GE(layouts, 6) << "with and without experts";
}

INSTANTIATE_TEST_SUITE_P(Families, ServingWholeStepTest, testing::ValuesIn(FamilyNames()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace trimtab
