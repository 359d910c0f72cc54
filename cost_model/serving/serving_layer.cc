#include "cost_model/serving/serving_layer.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/rules/rules.h"
#include "engine/layers/attention/layer_cache.h"
#include "engine/parameters/packed_parameter.h"
#include "engine/runtime/context.h"

namespace trimtab {
namespace {

constexpr int64_t kBlock = int64_t{1} << 24;  // one block for any sequence: no memory here

class PieceListener final : public Recorder {
 public:
  explicit PieceListener(Device& device) : device_(device) { device_.set_recorder(this); }
  ~PieceListener() override { device_.set_recorder(nullptr); }
  PieceListener(const PieceListener&) = delete;
  PieceListener& operator=(const PieceListener&) = delete;

  void EnterPiece(const PieceRecord& piece) override { pieces_.push_back({.piece = piece}); }
  void BeginOp(const OpRecord& op) override { pieces_.back().ops.push_back(op); }
  void BeginComm(const CommRecord& message) override { pieces_.back().messages.push_back(message); }
  void BeginWait(const CommRecord& /*message*/) override {}
  void End() override {}

  std::vector<ServingPiece> Take() { return std::exchange(pieces_, {}); }

 private:
  Device& device_;
  std::vector<ServingPiece> pieces_;
};

RunConfig RunOf(const ModelConfig& model, const ParallelConfig& layout) {
  RunConfig run;
  run.model = model;
  run.layout = layout;
  run.layout.numerics.precision = Precision::kBf16;
  run.device = DeviceKind::kCuda;
  run.sequence_length = layout.tp;
  return run;
}

}  // namespace

ServingLayer::ServingLayer(const ModelConfig& model, const ParallelConfig& layout, int64_t layer)
    : run_(RunOf(model, layout)) {
  RequireLegal(run_);
  device_ = MakeMetaDevice(/*threads=*/1, DeviceKind::kCuda);
  parallel_ = MakeMetaContext(run_.layout, /*rank=*/0);
  const LayerContext context = ContextOf(run_, parallel_, *device_, /*fp8=*/nullptr);
  model_.emplace(store_, context, ModelChunk{.first_layer = layer, .num_layers = 1});
  store_.Allocate(*device_, DType::kBf16, DType::kBf16);
  for (Parameter* each : store_.parameters()) {
    if (each->spec.absorbed_rows > 0) AllocatePacked(*device_, WeightFormat::kBf16, *each);
  }
  cache_ = NewLayerCache(*device_, model.layer(layer).mixer, layout.tp, /*blocks=*/1, kBlock,
                         DType::kBf16);
}

std::vector<ServingPiece> ServingLayer::Record(const ServingStep& step) {
  std::vector<PagedSegment> segments;
  std::vector<std::vector<int32_t>> blocks;
  int64_t rows = 0;
  const auto add = [&](int64_t count, int64_t position) {
    TRIMTAB_ASSERT(position + count <= kBlock, "a sequence of {} tokens", position + count);
    segments.push_back({.first_row = rows, .rows = count, .first_position = position});
    blocks.push_back({0});
    rows += count;
  };
  for (int64_t i = 0; i < step.sequences; ++i) add(1, step.context);
  for (int64_t i = 0; i < step.prompts; ++i) add(step.prompt_tokens, step.prompt_position);
  const int64_t multiple = run_.layout.sequence_parallel ? run_.layout.tp : 1;
  if (const int64_t more = RoundUp(rows, multiple) - rows; more > 0) add(more, 0);
  const RowLayout layout =
      RowLayout::Paged(*device_, std::move(segments), blocks, MemoryTag::kWorkspace);
  const auto ids = [&](int64_t count) {
    return Tensor::Empty(*device_, {count}, DType::kI32, MemoryTag::kWorkspace);
  };
  PieceListener listener(*device_);
  model_->Serve({.tokens = ids(rows),
                 .hidden = {},
                 .rows = &layout,
                 .caches = std::span(&cache_, 1),
                 .outputs = ids(RoundUp(step.sequences + step.prompts, multiple))});
  return listener.Take();
}

}  // namespace trimtab
