#include "cost_model/closed_form.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cost_model/block_cost.h"
#include "cost_model/finish.h"
#include "cost_model/fp8_plan.h"
#include "cost_model/price.h"
#include "cost_model/update_cost.h"
#include "engine/base/error.h"
#include "engine/config/rules.h"

namespace trimtab {
namespace {

/// Everything about a micro batch on one rank but its layers, which need not be alike.
struct Blocks {
  BlockCost embedding;
  BlockCost head;
  int64_t stream_bytes = 0;  // [rows, C]
  int64_t ids_bytes = 0;     // tokens and targets [N]
};

/// A run of layers that cost alike.
struct LayerCosts {
  const BlockCost* cost = nullptr;
  int64_t layers = 0;
};

/// Packs small counts into one key; a count too large for its field is refused.
class KeyPacker {
 public:
  KeyPacker& Put(int64_t value, int bits) {
    TRIMTAB_ASSERT(value >= 0 && value < (int64_t{1} << bits), "{} does not fit {} bits", value,
                   bits);
    key_ = (key_ << bits) | static_cast<uint64_t>(value);
    return *this;
  }
  KeyPacker& Put(DType value) { return Put(static_cast<int64_t>(value), 3); }
  uint64_t key() const { return key_; }

 private:
  uint64_t key_ = 0;
};

/// How many of `layers` layers run their forward pass twice.
int64_t RecomputedLayers(const RecomputeConfig& recompute, int64_t layers) {
  if (recompute.kind == RecomputeKind::kNone) return 0;
  return recompute.num_layers < 0 ? layers : std::min(recompute.num_layers, layers);
}

/// `runs` cut in two: the first `count` layers, and the rest.
std::pair<std::vector<LayerCosts>, std::vector<LayerCosts>> Split(
    const std::vector<LayerCosts>& runs, int64_t count) {
  std::pair<std::vector<LayerCosts>, std::vector<LayerCosts>> parts;
  for (const LayerCosts& run : runs) {
    const int64_t first = std::min(run.layers, count);
    if (first > 0) parts.first.push_back({run.cost, first});
    if (run.layers > first) parts.second.push_back({run.cost, run.layers - first});
    count -= first;
  }
  return parts;
}

struct MemoryPeaks {
  int64_t activations = 0;
  int64_t total = 0;  // both above what persists
};

/// Follows GptModel::Forward and Backward over the layers, of which the first ones keep only their
/// input. Layers of a run are alike, so its peak lies at its last one.
MemoryPeaks PeaksOfMicroBatch(const Blocks& blocks, const std::vector<LayerCosts>& recomputed,
                              const std::vector<LayerCosts>& kept) {
  const int64_t x = blocks.stream_bytes;
  MemoryPeaks peaks;
  const auto see = [&peaks](int64_t base, const BlockCost& block) {
    peaks.total = std::max(peaks.total, base + block.forward_peak);
    peaks.activations = std::max(peaks.activations, base + block.forward_activations_peak);
  };
  const auto see_backward = [&peaks](int64_t base, const BlockCost& block) {
    peaks.total = std::max(peaks.total, base + block.backward_peak);
  };

  see(blocks.ids_bytes, blocks.embedding);
  // In use when a layer is entered: ids, the inputs up to its own, and what kept layers hold.
  int64_t entered = blocks.ids_bytes;
  for (const LayerCosts& run : recomputed) {
    const BlockCost& layer = *run.cost;
    entered += run.layers * x;
    see(entered, layer);
    // Its backward pass, before which it runs forward once more. Backward passes carry one more
    // [rows, C]: the gradient of the residual stream.
    peaks.total = std::max(peaks.total, entered + x + layer.forward_peak);
    see_backward(entered + layer.kept_bytes + x, layer);
  }
  for (const LayerCosts& run : kept) {
    const BlockCost& layer = *run.cost;
    entered += run.layers * x + (run.layers - 1) * layer.kept_bytes;
    see(entered, layer);
    entered += layer.kept_bytes;
    see_backward(entered + x, layer);
  }
  const int64_t at_head = entered + x;
  see(at_head, blocks.head);
  see_backward(at_head + blocks.head.kept_bytes, blocks.head);
  see_backward(blocks.ids_bytes + x, blocks.embedding);
  return peaks;
}

bool SequenceParallel(const ParallelConfig& layout) {
  return layout.sequence_parallel && layout.tp > 1;
}

}  // namespace

class ClosedFormEstimator::Impl {
 public:
  Impl(const ModelConfig& model, int64_t sequence_length, const Cluster& cluster)
      : model_(model), sequence_(sequence_length), cluster_(cluster) {}

  Estimate Run(const RunConfig& run);

 private:
  /// What runs of one mode, precision and fp8 configuration share.
  struct Setting {
    Mode mode;
    Precision precision = Precision::kFp32;
    Fp8Config fp8;
    Pricer pricer;
    std::vector<LayerRun> layers;
  };

  /// The index of the run's setting.
  size_t SettingOf(const RunConfig& run);
  BlockShape ShapeOf(const Setting& setting, const ParallelConfig& layout) const;
  /// The key of what a micro batch costs.
  static KeyPacker BlockKey(size_t setting, const ParallelConfig& layout);
  const Blocks& BlocksOf(size_t setting, const ParallelConfig& layout);
  const BlockCost& LayerOf(size_t setting, const ParallelConfig& layout, const Fp8Linears& fp8);
  const UpdateCost& UpdateOf(size_t setting, const ParallelConfig& layout);
  const FlatLayout& FlatOf(int64_t tp);

  ModelConfig model_;
  int64_t sequence_;
  Cluster cluster_;
  std::vector<Setting> settings_;
  std::unordered_map<uint64_t, Blocks> blocks_;
  std::unordered_map<uint64_t, BlockCost> layers_;
  std::unordered_map<uint64_t, UpdateCost> updates_;
  std::unordered_map<int64_t, FlatLayout> flats_;
};

size_t ClosedFormEstimator::Impl::SettingOf(const RunConfig& run) {
  const Mode mode = ModeOf(run, cluster_);
  const Precision precision = run.layout.precision;
  for (size_t i = 0; i < settings_.size(); ++i) {
    const Setting& each = settings_[i];
    if (each.mode == mode && each.precision == precision && each.fp8 == run.fp8) return i;
  }
  settings_.push_back(
      {.mode = mode,
       .precision = precision,
       .fp8 = run.fp8,
       .pricer = Pricer(cluster_.profile, mode, cluster_.ranks_per_node, cluster_.cores, precision),
       .layers = precision == Precision::kFp8 ? PlanFp8(model_, run.fp8)
                                              : std::vector<LayerRun>{{{}, model_.num_layers}}});
  return settings_.size() - 1;
}

const FlatLayout& ClosedFormEstimator::Impl::FlatOf(int64_t tp) {
  const auto found = flats_.find(tp);
  if (found != flats_.end()) return found->second;
  return flats_.emplace(tp, PlanFlatLayout(model_, tp)).first->second;
}

BlockShape ClosedFormEstimator::Impl::ShapeOf(const Setting& setting,
                                              const ParallelConfig& layout) const {
  return {.tp = layout.tp,
          .sequence_parallel = SequenceParallel(layout),
          .micro_batch = layout.micro_batch,
          .sequence = sequence_,
          .executor = ExecutorOf(setting.mode, cluster_),
          .types = TypesOf(layout),
          .current_scaling = setting.fp8.scaling == "current"};
}

KeyPacker ClosedFormEstimator::Impl::BlockKey(size_t setting, const ParallelConfig& layout) {
  return KeyPacker()
      .Put(static_cast<int64_t>(setting), 16)
      .Put(layout.tp, 16)
      .Put(SequenceParallel(layout) ? 1 : 0, 1)
      .Put(layout.micro_batch, 20)
      .Put(TypesOf(layout).gradients);
}

const Blocks& ClosedFormEstimator::Impl::BlocksOf(size_t setting, const ParallelConfig& layout) {
  const uint64_t key = BlockKey(setting, layout).key();
  const auto found = blocks_.find(key);
  if (found != blocks_.end()) return found->second;
  const Pricer& pricer = settings_[setting].pricer;
  const BlockShape shape = ShapeOf(settings_[setting], layout);
  const Blocks blocks = {
      .embedding = EmbeddingCost(model_, shape, pricer),
      .head = HeadCost(model_, shape, pricer),
      .stream_bytes = SizeOf(shape.types.activations) * shape.rows() * model_.hidden_size,
      .ids_bytes = 2 * SizeOf(DType::kI32) * shape.tokens()};
  return blocks_.emplace(key, blocks).first->second;
}

const BlockCost& ClosedFormEstimator::Impl::LayerOf(size_t setting, const ParallelConfig& layout,
                                                    const Fp8Linears& fp8) {
  KeyPacker packer = BlockKey(setting, layout);
  for (const bool each : fp8) packer.Put(each ? 1 : 0, 1);
  const auto found = layers_.find(packer.key());
  if (found != layers_.end()) return found->second;
  BlockShape shape = ShapeOf(settings_[setting], layout);
  shape.fp8 = fp8;
  const BlockCost cost = LayerCost(model_, shape, settings_[setting].pricer);
  return layers_.emplace(packer.key(), cost).first->second;
}

const UpdateCost& ClosedFormEstimator::Impl::UpdateOf(size_t setting,
                                                      const ParallelConfig& layout) {
  const Setting& shared = settings_[setting];
  UpdateShape shape = {.tp = layout.tp,
                       .dp = layout.dp,
                       .sequence_parallel = SequenceParallel(layout),
                       .sharded = layout.zero >= 1 && layout.dp > 1,
                       .types = TypesOf(layout)};
  const uint64_t key = KeyPacker()
                           .Put(static_cast<int64_t>(setting), 16)
                           .Put(shape.tp, 16)
                           .Put(shape.dp, 18)
                           .Put(shape.sequence_parallel ? 1 : 0, 1)
                           .Put(shape.sharded ? 1 : 0, 1)
                           .Put(shape.types.master)
                           .Put(shape.types.moments)
                           .Put(shape.types.gradients)
                           .key();
  const auto found = updates_.find(key);
  if (found != updates_.end()) return found->second;
  if (shape.types.fp8) {
    shape.fp8 = {.layers = CountFp8(shared.layers),
                 .shapes = LinearShapes(model_, layout.tp),
                 .delayed = shared.fp8.scaling == "delayed",
                 .history = shared.fp8.history};
  }
  return updates_.emplace(key, PriceUpdate(FlatOf(layout.tp), shape, shared.pricer)).first->second;
}

Estimate ClosedFormEstimator::Impl::Run(const RunConfig& run) {
  const ParallelConfig& layout = run.layout;
  TRIMTAB_ASSERT(run.sequence_length == sequence_ && run.model.num_layers == model_.num_layers &&
                     run.model.hidden_size == model_.hidden_size,
                 "this estimator is for {} at sequence length {}", model_.name, sequence_);
  const size_t setting = SettingOf(run);
  const Blocks& blocks = BlocksOf(setting, layout);
  const UpdateCost& update = UpdateOf(setting, layout);
  std::vector<LayerCosts> layers;
  for (const LayerRun& each : settings_[setting].layers) {
    layers.push_back({&LayerOf(setting, layout, each.fp8), each.layers});
  }
  const int64_t micro_batches = run.num_micro_batches();
  const auto [recomputed, kept] =
      Split(layers, RecomputedLayers(layout.recompute, model_.num_layers));

  Cost total;
  const auto add_block = [&](const BlockCost& block, int64_t times) {
    total.Add(block.forward, times * micro_batches);
    total.Add(block.backward_first, times);
    total.Add(block.backward_accumulate, times * (micro_batches - 1));
  };
  add_block(blocks.embedding, 1);
  for (const LayerCosts& each : layers) add_block(*each.cost, each.layers);
  add_block(blocks.head, 1);
  Cost recompute;
  for (const LayerCosts& each : recomputed) {
    recompute.Add(each.cost->forward, each.layers * micro_batches);
  }

  Estimate estimate;
  Breakdown& parts = estimate.breakdown_s;
  parts.compute = total.compute_s;
  parts.exposed_tp = total.tp_s + update.tp_s;
  parts.exposed_dp = update.dp_s;
  parts.recompute = recompute.compute_s + recompute.tp_s;
  parts.optimizer = update.optimizer_s;

  total.Add(recompute, 1);
  estimate.hardware_flops = total.flops;
  estimate.op_count = total.ops + update.ops;
  estimate.comm = update.comm;
  const auto add = [&estimate](CollectiveKind kind, const CommTotal& more) {
    CommTotal& sum = estimate.comm.at(kind, GroupKind::kTensor);
    sum.count += more.count;
    sum.bytes += more.bytes;
  };
  add(CollectiveKind::kAllReduce, total.tp_all_reduce);
  add(CollectiveKind::kReduceScatter, total.tp_reduce_scatter);
  add(CollectiveKind::kAllGather, total.tp_all_gather);

  const MemoryPeaks peaks = PeaksOfMicroBatch(blocks, recomputed, kept);
  estimate.memory = {.weights = update.weight_bytes,
                     .gradients = update.gradient_bytes,
                     .optimizer = update.optimizer_bytes,
                     .activations = peaks.activations};
  estimate.memory.peak_total = estimate.memory.persistent() + peaks.total;
  FinishEstimate(run, cluster_, settings_[setting].pricer, estimate);
  return estimate;
}

ClosedFormEstimator::ClosedFormEstimator(const ModelConfig& model, int64_t sequence_length,
                                         const Cluster& cluster)
    : impl_(std::make_unique<Impl>(model, sequence_length, cluster)) {}
ClosedFormEstimator::~ClosedFormEstimator() = default;
ClosedFormEstimator::ClosedFormEstimator(ClosedFormEstimator&&) noexcept = default;

Estimate ClosedFormEstimator::Run(const RunConfig& run) { return impl_->Run(run); }

Estimate ClosedForm(const RunConfig& run, const Cluster& cluster) {
  RequireLegal(run);
  return ClosedFormEstimator(run.model, run.sequence_length, cluster).Run(run);
}

}  // namespace trimtab
