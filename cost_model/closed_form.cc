#include "cost_model/closed_form.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "cost_model/block_cost.h"
#include "cost_model/finish.h"
#include "cost_model/price.h"
#include "cost_model/update_cost.h"
#include "engine/base/error.h"
#include "engine/config/rules.h"

namespace trimtab {
namespace {

/// Everything about a micro batch on one rank.
struct Blocks {
  BlockCost embedding;
  BlockCost layer;
  BlockCost head;
  int64_t stream_bytes = 0;  // [rows, C]
  int64_t ids_bytes = 0;     // tokens and targets [N]
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
  uint64_t key() const { return key_; }

 private:
  uint64_t key_ = 0;
};

/// How many of `layers` layers run their forward pass twice.
int64_t RecomputedLayers(const RecomputeConfig& recompute, int64_t layers) {
  if (recompute.kind == RecomputeKind::kNone) return 0;
  return recompute.num_layers < 0 ? layers : std::min(recompute.num_layers, layers);
}

struct MemoryPeaks {
  int64_t activations = 0;
  int64_t total = 0;  // above what persists
};

/// Follows GptModel::Forward and Backward over `layers` layers, the first `recomputed` of which
/// keep only their input. Layers of a kind are alike, so the peak lies at the last one of its kind.
MemoryPeaks PeaksOfMicroBatch(const Blocks& blocks, int64_t layers, int64_t recomputed) {
  const int64_t x = blocks.stream_bytes;
  const int64_t kept = blocks.layer.kept_bytes;
  MemoryPeaks peaks;
  const auto see = [&peaks](int64_t bytes) { peaks.total = std::max(peaks.total, bytes); };

  // In use when layer i is entered: ids, inputs 0..i, and what the kept layers before it hold.
  const auto entering = [&](int64_t i) {
    return blocks.ids_bytes + (i + 1) * x + std::max<int64_t>(i - recomputed, 0) * kept;
  };
  see(blocks.ids_bytes + blocks.embedding.forward_peak);
  if (recomputed > 0) see(entering(recomputed - 1) + blocks.layer.forward_peak);
  if (recomputed < layers) see(entering(layers - 1) + blocks.layer.forward_peak);
  const int64_t at_head = entering(layers);
  see(at_head + blocks.head.forward_peak);
  const int64_t after_head = at_head + blocks.head.kept_bytes;
  see(after_head + blocks.head.backward_peak);

  // The backward pass carries one more [rows, C]: the gradient of the residual stream.
  if (recomputed < layers) {
    see(entering(layers - 1) + kept + x + blocks.layer.backward_peak);
  }
  if (recomputed > 0) {
    const int64_t entered = entering(recomputed - 1) + x;
    see(entered + blocks.layer.forward_peak);
    see(entered + kept + blocks.layer.backward_peak);
  }
  see(blocks.ids_bytes + x + blocks.embedding.backward_peak);

  peaks.activations = after_head;
  if (recomputed > 0) {
    peaks.activations = std::max(peaks.activations, entering(recomputed - 1) + kept + x);
  }
  return peaks;
}

}  // namespace

class ClosedFormEstimator::Impl {
 public:
  Impl(const ModelConfig& model, int64_t sequence_length, const Cluster& cluster)
      : model_(model), sequence_(sequence_length), cluster_(cluster) {}

  Estimate Run(const RunConfig& run);

 private:
  const Pricer& PricerOf(const Mode& mode);
  const Blocks& BlocksOf(const ParallelConfig& layout, const Mode& mode);
  const UpdateCost& UpdateOf(const ParallelConfig& layout, const Mode& mode);
  const FlatLayout& FlatOf(int64_t tp);

  ModelConfig model_;
  int64_t sequence_;
  Cluster cluster_;
  std::unordered_map<uint64_t, Pricer> pricers_;
  std::unordered_map<uint64_t, Blocks> blocks_;
  std::unordered_map<uint64_t, UpdateCost> updates_;
  std::unordered_map<int64_t, FlatLayout> flats_;
};

namespace {

bool SequenceParallel(const ParallelConfig& layout) {
  return layout.sequence_parallel && layout.tp > 1;
}

KeyPacker ModeKey(const Mode& mode) { return KeyPacker().Put(mode.ranks, 18).Put(mode.threads, 8); }

}  // namespace

const Pricer& ClosedFormEstimator::Impl::PricerOf(const Mode& mode) {
  const uint64_t key = ModeKey(mode).key();
  const auto found = pricers_.find(key);
  if (found != pricers_.end()) return found->second;
  return pricers_
      .emplace(key, Pricer(cluster_.profile, mode, cluster_.ranks_per_node, cluster_.cores))
      .first->second;
}

const FlatLayout& ClosedFormEstimator::Impl::FlatOf(int64_t tp) {
  const auto found = flats_.find(tp);
  if (found != flats_.end()) return found->second;
  return flats_.emplace(tp, PlanFlatLayout(model_, tp)).first->second;
}

const Blocks& ClosedFormEstimator::Impl::BlocksOf(const ParallelConfig& layout, const Mode& mode) {
  const uint64_t key = ModeKey(mode)
                           .Put(layout.tp, 16)
                           .Put(SequenceParallel(layout) ? 1 : 0, 1)
                           .Put(layout.micro_batch, 20)
                           .key();
  const auto found = blocks_.find(key);
  if (found != blocks_.end()) return found->second;
  const Pricer& pricer = PricerOf(mode);
  const BlockShape shape = {.tp = layout.tp,
                            .sequence_parallel = SequenceParallel(layout),
                            .micro_batch = layout.micro_batch,
                            .sequence = sequence_,
                            .threads = mode.threads};
  const Blocks blocks = {.embedding = EmbeddingCost(model_, shape, pricer),
                         .layer = LayerCost(model_, shape, pricer),
                         .head = HeadCost(model_, shape, pricer),
                         .stream_bytes = SizeOf(DType::kF32) * shape.rows() * model_.hidden_size,
                         .ids_bytes = 2 * SizeOf(DType::kI32) * shape.tokens()};
  return blocks_.emplace(key, blocks).first->second;
}

const UpdateCost& ClosedFormEstimator::Impl::UpdateOf(const ParallelConfig& layout,
                                                      const Mode& mode) {
  const UpdateShape shape = {.tp = layout.tp,
                             .dp = layout.dp,
                             .sequence_parallel = SequenceParallel(layout),
                             .sharded = layout.zero >= 1 && layout.dp > 1};
  const uint64_t key = ModeKey(mode)
                           .Put(shape.tp, 16)
                           .Put(shape.dp, 18)
                           .Put(shape.sequence_parallel ? 1 : 0, 1)
                           .Put(shape.sharded ? 1 : 0, 1)
                           .key();
  const auto found = updates_.find(key);
  if (found != updates_.end()) return found->second;
  return updates_.emplace(key, PriceUpdate(FlatOf(layout.tp), shape, PricerOf(mode))).first->second;
}

Estimate ClosedFormEstimator::Impl::Run(const RunConfig& run) {
  const ParallelConfig& layout = run.layout;
  TRIMTAB_ASSERT(run.sequence_length == sequence_ && run.model.num_layers == model_.num_layers &&
                     run.model.hidden_size == model_.hidden_size,
                 "this estimator is for {} at sequence length {}", model_.name, sequence_);
  const Mode mode = ModeOf(run, cluster_);
  const Pricer& pricer = PricerOf(mode);
  const Blocks& blocks = BlocksOf(layout, mode);
  const UpdateCost& update = UpdateOf(layout, mode);

  const int64_t layers = model_.num_layers;
  const int64_t micro_batches = run.num_micro_batches();
  const int64_t recomputed = RecomputedLayers(layout.recompute, layers);

  Cost total;
  total.Add(blocks.embedding.forward, micro_batches);
  total.Add(blocks.layer.forward, layers * micro_batches);
  total.Add(blocks.head.forward, micro_batches);
  for (const auto& [block, times] : {std::pair<const BlockCost*, int64_t>{&blocks.embedding, 1},
                                     {&blocks.layer, layers},
                                     {&blocks.head, 1}}) {
    total.Add(block->backward_first, times);
    total.Add(block->backward_accumulate, times * (micro_batches - 1));
  }
  Cost recompute;
  recompute.Add(blocks.layer.forward, recomputed * micro_batches);

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

  const MemoryPeaks peaks = PeaksOfMicroBatch(blocks, layers, recomputed);
  estimate.memory = {.weights = update.weight_bytes,
                     .gradients = update.gradient_bytes,
                     .optimizer = update.optimizer_bytes,
                     .activations = peaks.activations};
  estimate.memory.peak_total = estimate.memory.persistent() + peaks.total;
  FinishEstimate(run, cluster_, pricer, estimate);
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
