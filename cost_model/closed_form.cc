#include "cost_model/closed_form.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cost_model/finish.h"
#include "cost_model/piece_cost.h"
#include "cost_model/price.h"
#include "cost_model/recording.h"
#include "engine/base/error.h"
#include "engine/config/rules.h"

namespace trimtab {
namespace {

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

/// Two words: counts of one rank's work, and what tells apart the rest.
using CostKey = std::pair<uint64_t, uint64_t>;
struct HashCostKey {
  size_t operator()(const CostKey& key) const {
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15ULL;
    return static_cast<size_t>((key.first * kOdd ^ key.second) * kOdd);
  }
};
template <typename Cost>
using CostMap = std::unordered_map<CostKey, Cost, HashCostKey>;

/// The three ways through a part of the model.
struct PassCosts {
  PieceCost forward;
  PieceCost backward_overwriting;
  PieceCost backward_adding;

  void AppendForward(const PassCosts& next, int64_t times) { forward.Append(next.forward, times); }
  void AppendBackward(const PassCosts& next, int64_t times) {
    backward_overwriting.Append(next.backward_overwriting, times);
    backward_adding.Append(next.backward_adding, times);
  }
};

/// A micro batch of a model whose layers are alike.
struct KindCosts {
  PassCosts embedding;
  std::vector<PassCosts> layers;  // as many as were recorded
  PassCosts head;
  int64_t input_bytes = 0;
};

/// A micro batch of the whole model.
struct MicroBatchCosts {
  PassCosts passes;
  int64_t input_bytes = 0;  // in use before it
};

/// The pieces of `kind` (and of layer number `layer`) among those of one pass, priced.
PieceCost PriceOf(PieceKind kind, int64_t layer, const std::vector<Recording>& pieces,
                  const ParallelConfig& layout, const Pricer& pricer) {
  const auto is_asked = [kind, layer](const Recording& each) {
    return each.piece.kind == kind && each.piece.layer == layer;
  };
  const auto begin = std::find_if(pieces.begin(), pieces.end(), is_asked);
  const auto end = std::find_if_not(begin, pieces.end(), is_asked);
  return PriceOf(std::span(begin, end), layout, pricer);
}

PassCosts PriceOf(PieceKind kind, int64_t layer, const MicroBatchRecording& recording,
                  const ParallelConfig& layout, const Pricer& pricer) {
  const auto price = [&](const std::vector<Recording>& pieces) {
    return PriceOf(kind, layer, pieces, layout, pricer);
  };
  return {.forward = price(recording.forward),
          .backward_overwriting = price(recording.backward_overwriting),
          .backward_adding = price(recording.backward_adding)};
}

/// The end of a step, and what stays in memory between steps.
struct UpdateCosts {
  PieceCost update;
  BytesByTag held{};

  int64_t held_as(MemoryTag tag) const { return held[static_cast<size_t>(tag)]; }
};

/// Neighbouring layers that cost alike.
struct LayerRun {
  int64_t first = 0;
  int64_t count = 0;
  int64_t kind = 0;      // the first layer of the model like these, recomputation aside
  int64_t recorded = 0;  // the one that stands for them, of those that were recorded
};

/// Of `recorded` layers, which one stands for layer `layer` of `layers`: the first one for the
/// first, the last one for the last.
int64_t StandsFor(int64_t layer, int64_t layers, int64_t recorded) {
  if (layer == 0) return 0;
  return layer == layers - 1 ? recorded - 1 : std::min<int64_t>(1, recorded - 1);
}

/// The layers of the run's model under its plan of recomputation; `first_alike` as FirstAlike says.
std::vector<LayerRun> RunsOf(const RunConfig& run, const std::vector<int64_t>& first_alike) {
  const RecomputeConfig& recompute = run.layout.recompute;
  const int64_t layers = run.model.num_layers;
  std::vector<LayerRun> runs;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t kind = first_alike[static_cast<size_t>(layer)];
    const int64_t recorded = StandsFor(layer, layers, RecordedLayers(run));
    const bool same =
        !runs.empty() && runs.back().kind == kind && runs.back().recorded == recorded &&
        RecomputeOfLayer(recompute, runs.back().first) == RecomputeOfLayer(recompute, layer);
    if (!same) runs.push_back({.first = layer, .kind = kind, .recorded = recorded});
    ++runs.back().count;
  }
  return runs;
}

bool SequenceParallel(const ParallelConfig& layout) {
  return layout.sequence_parallel && layout.tp > 1;
}

/// The stage of sharding that comes to something.
int64_t StageOf(const ParallelConfig& layout) { return layout.dp > 1 ? layout.zero : 0; }

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
    std::vector<int64_t> first_alike;
  };

  /// The index of the run's setting.
  size_t SettingOf(const RunConfig& run);
  /// The key of what a micro batch costs in a setting under `recompute`; `detail` tells apart what
  /// these do not.
  static CostKey MicroBatchKey(size_t setting, const ParallelConfig& layout,
                               const RecomputeConfig& recompute, int64_t detail);
  const MicroBatchCosts& MicroBatchOf(size_t setting, const RunConfig& run);
  const KindCosts& KindOf(size_t setting, const RunConfig& run, const LayerRun& layers);
  const UpdateCosts& UpdateOf(size_t setting, const RunConfig& run);

  ModelConfig model_;
  int64_t sequence_;
  Cluster cluster_;
  std::vector<Setting> settings_;
  CostMap<MicroBatchCosts> micro_batches_;
  CostMap<KindCosts> kinds_;
  std::unordered_map<uint64_t, UpdateCosts> updates_;
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
       .first_alike = FirstAlike(run)});
  return settings_.size() - 1;
}

CostKey ClosedFormEstimator::Impl::MicroBatchKey(size_t setting, const ParallelConfig& layout,
                                                 const RecomputeConfig& recompute,
                                                 int64_t detail) {
  const int64_t stage = StageOf(layout);
  KeyPacker work;
  work.Put(static_cast<int64_t>(setting), 10)
      .Put(layout.tp, 14)
      .Put(SequenceParallel(layout) ? 1 : 0, 1)
      .Put(layout.micro_batch, 20)
      .Put(TypesOf(layout).gradients);
  KeyPacker rest;
  rest.Put(static_cast<int64_t>(recompute.kind), 1).Put(detail, 15);
  // Micro batches talk to the data-parallel ranks from stage 2 on.
  if (stage >= 2) rest.Put(stage, 2).Put(layout.dp, 18).Put(layout.reshard_after_forward ? 1 : 0, 1);
  return {work.key(), rest.key()};
}

const KindCosts& ClosedFormEstimator::Impl::KindOf(size_t setting, const RunConfig& run,
                                                   const LayerRun& layers) {
  const Setting& shared = settings_[setting];
  const CostKey key =
      MicroBatchKey(setting, run.layout, RecomputeOfLayer(run.layout.recompute, layers.first),
                    layers.kind);
  const auto found = kinds_.find(key);
  if (found != kinds_.end()) return found->second;
  const MicroBatchRecording recording =
      RecordMicroBatch(run, layers.first, ExecutorOf(shared.mode, cluster_));
  const auto price = [&](PieceKind kind, int64_t layer) {
    return PriceOf(kind, layer, recording, run.layout, shared.pricer);
  };
  KindCosts costs = {.embedding = price(PieceKind::kEmbedding, 0),
                     .layers = {},
                     .head = price(PieceKind::kHead, 0),
                     .input_bytes = recording.input_bytes};
  for (int64_t i = 0; i < recording.layers; ++i) {
    costs.layers.push_back(price(PieceKind::kLayer, i));
  }
  return kinds_.emplace(key, std::move(costs)).first->second;
}

const MicroBatchCosts& ClosedFormEstimator::Impl::MicroBatchOf(size_t setting,
                                                               const RunConfig& run) {
  const RecomputeConfig& recompute = run.layout.recompute;
  const CostKey key = MicroBatchKey(setting, run.layout, recompute, recompute.num_layers + 1);
  const auto found = micro_batches_.find(key);
  if (found != micro_batches_.end()) return found->second;
  const std::vector<LayerRun> runs = RunsOf(run, settings_[setting].first_alike);
  const auto costs_of = [&](const LayerRun& each) -> const PassCosts& {
    return KindOf(setting, run, each).layers[static_cast<size_t>(each.recorded)];
  };
  const KindCosts& ends = KindOf(setting, run, runs.front());
  PassCosts all;
  all.AppendForward(ends.embedding, 1);
  for (const LayerRun& each : runs) all.AppendForward(costs_of(each), each.count);
  all.AppendForward(ends.head, 1);
  all.AppendBackward(ends.head, 1);
  for (size_t i = runs.size(); i-- > 0;) all.AppendBackward(costs_of(runs[i]), runs[i].count);
  all.AppendBackward(ends.embedding, 1);
  return micro_batches_
      .emplace(key, MicroBatchCosts{.passes = std::move(all), .input_bytes = ends.input_bytes})
      .first->second;
}

const UpdateCosts& ClosedFormEstimator::Impl::UpdateOf(size_t setting, const RunConfig& run) {
  const ParallelConfig& layout = run.layout;
  const Setting& shared = settings_[setting];
  const TrainingTypes types = TypesOf(layout);
  const uint64_t key = KeyPacker()
                           .Put(static_cast<int64_t>(setting), 10)
                           .Put(layout.tp, 14)
                           .Put(layout.dp, 18)
                           .Put(SequenceParallel(layout) ? 1 : 0, 1)
                           .Put(StageOf(layout), 2)
                           .Put(types.master)
                           .Put(types.moments)
                           .Put(types.gradients)
                           .key();
  const auto found = updates_.find(key);
  if (found != updates_.end()) return found->second;
  const UpdateRecording recording = RecordUpdate(run, ExecutorOf(shared.mode, cluster_));
  return updates_
      .emplace(key, UpdateCosts{.update = trimtab::PriceOf(std::span(&recording.update, 1), layout,
                                                           shared.pricer),
                                .held = recording.held})
      .first->second;
}

Estimate ClosedFormEstimator::Impl::Run(const RunConfig& run) {
  TRIMTAB_ASSERT(run.sequence_length == sequence_ && run.model.num_layers == model_.num_layers &&
                     run.model.hidden_size == model_.hidden_size,
                 "this estimator is for {} at sequence length {}", model_.name, sequence_);
  const size_t setting = SettingOf(run);
  const MicroBatchCosts& costs = MicroBatchOf(setting, run);
  const PassCosts& micro_batch = costs.passes;
  const UpdateCosts& end = UpdateOf(setting, run);
  const int64_t micro_batches = run.num_micro_batches();

  Estimate estimate;
  Breakdown& parts = estimate.breakdown_s;
  const auto add = [&](const PieceCost& cost, int64_t times) {
    const auto factor = static_cast<double>(times);
    parts.recompute += factor * cost.recompute_s;
    parts.exposed_tp += factor * cost.message_s[static_cast<size_t>(GroupKind::kTensor)];
    parts.exposed_dp += factor * (cost.message_s[static_cast<size_t>(GroupKind::kData)] +
                                  cost.message_s[static_cast<size_t>(GroupKind::kWorld)]);
    estimate.hardware_flops += times * cost.flops;
    estimate.op_count += times * cost.ops;
    for (const MessageCount& each : cost.messages) {
      CommTotal& total = estimate.comm.at(each.kind, each.group);
      total.count += times * each.count;
      total.bytes += times * each.bytes;
    }
  };
  add(micro_batch.forward, micro_batches);
  add(micro_batch.backward_overwriting, 1);
  add(micro_batch.backward_adding, micro_batches - 1);
  add(end.update, 1);
  parts.compute = static_cast<double>(micro_batches) * micro_batch.forward.compute_s +
                  micro_batch.backward_overwriting.compute_s +
                  static_cast<double>(micro_batches - 1) * micro_batch.backward_adding.compute_s;
  parts.optimizer = end.update.compute_s;

  const auto peak_of = [&](MemorySpan PieceCost::*span) {
    const MemorySpan& forward = micro_batch.forward.*span;
    int64_t peak = std::max(forward.Then(micro_batch.backward_overwriting.*span).peak,
                            (end.update.*span).peak);
    if (micro_batches > 1) {
      peak = std::max(peak, forward.Then(micro_batch.backward_adding.*span).peak);
    }
    return peak;
  };
  MemoryEstimate& memory = estimate.memory;
  memory.weights = end.held_as(MemoryTag::kWeights);
  memory.gradients = end.held_as(MemoryTag::kGradients);
  memory.optimizer = end.held_as(MemoryTag::kOptimizer);
  memory.activations = costs.input_bytes + peak_of(&PieceCost::activations);
  memory.peak_total = memory.persistent() + costs.input_bytes + peak_of(&PieceCost::total);
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
  RequireEstimable(run);
  return ClosedFormEstimator(run.model, run.sequence_length, cluster).Run(run);
}

}  // namespace trimtab
