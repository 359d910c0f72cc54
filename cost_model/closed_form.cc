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

/// A micro batch of a model with one layer.
struct KindCosts {
  PassCosts embedding;
  PassCosts layer;
  PassCosts head;
  int64_t input_bytes = 0;
};

/// A micro batch of the whole model.
struct MicroBatchCosts {
  PassCosts passes;
  int64_t input_bytes = 0;  // in use before it
};

/// The pieces of `kind` among those of one pass, priced.
PieceCost PriceOf(PieceKind kind, const std::vector<Recording>& pieces,
                  const ParallelConfig& layout, const Pricer& pricer) {
  const auto is_kind = [kind](const Recording& each) { return each.piece.kind == kind; };
  const auto begin = std::find_if(pieces.begin(), pieces.end(), is_kind);
  const auto end = std::find_if_not(begin, pieces.end(), is_kind);
  return PriceOf(std::span(begin, end), layout, pricer);
}

PassCosts PriceOf(PieceKind kind, const MicroBatchRecording& recording,
                  const ParallelConfig& layout, const Pricer& pricer) {
  return {.forward = PriceOf(kind, recording.forward, layout, pricer),
          .backward_overwriting = PriceOf(kind, recording.backward_overwriting, layout, pricer),
          .backward_adding = PriceOf(kind, recording.backward_adding, layout, pricer)};
}

/// The end of a step, and what stays in memory between steps.
struct UpdateCosts {
  PieceCost update;
  BytesByTag held{};

  int64_t held_as(MemoryTag tag) const { return held[static_cast<size_t>(tag)]; }
};

/// Neighbouring layers that are recorded alike.
struct LayerRun {
  int64_t first = 0;
  int64_t count = 0;
  int64_t kind = 0;  // the first layer of the model like these, recomputation aside
};

/// The model's layers under a plan of recomputation; `first_alike` as FirstAlike says.
std::vector<LayerRun> RunsOf(const std::vector<int64_t>& first_alike,
                             const RecomputeConfig& recompute) {
  std::vector<LayerRun> runs;
  for (size_t i = 0; i < first_alike.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    const bool same =
        !runs.empty() && runs.back().kind == first_alike[i] &&
        RecomputeOfLayer(recompute, runs.back().first) == RecomputeOfLayer(recompute, layer);
    if (!same) runs.push_back({.first = layer, .kind = first_alike[i]});
    ++runs.back().count;
  }
  return runs;
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
    std::vector<int64_t> first_alike;
  };

  /// The index of the run's setting.
  size_t SettingOf(const RunConfig& run);
  /// The key of what a micro batch costs in a setting, but for recomputation.
  static KeyPacker ShapeKey(size_t setting, const ParallelConfig& layout);
  const MicroBatchCosts& MicroBatchOf(size_t setting, const RunConfig& run);
  const KindCosts& KindOf(size_t setting, const RunConfig& run, const LayerRun& layers);
  const UpdateCosts& UpdateOf(size_t setting, const RunConfig& run);

  ModelConfig model_;
  int64_t sequence_;
  Cluster cluster_;
  std::vector<Setting> settings_;
  std::unordered_map<uint64_t, MicroBatchCosts> micro_batches_;
  std::unordered_map<uint64_t, KindCosts> kinds_;
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

KeyPacker ClosedFormEstimator::Impl::ShapeKey(size_t setting, const ParallelConfig& layout) {
  return KeyPacker()
      .Put(static_cast<int64_t>(setting), 10)
      .Put(layout.tp, 14)
      .Put(SequenceParallel(layout) ? 1 : 0, 1)
      .Put(layout.micro_batch, 20)
      .Put(TypesOf(layout).gradients);
}

const KindCosts& ClosedFormEstimator::Impl::KindOf(size_t setting, const RunConfig& run,
                                                   const LayerRun& layers) {
  const Setting& shared = settings_[setting];
  const RecomputeConfig recompute = RecomputeOfLayer(run.layout.recompute, layers.first);
  const uint64_t key = ShapeKey(setting, run.layout)
                           .Put(static_cast<int64_t>(recompute.kind), 1)
                           .Put(layers.kind, 15)
                           .key();
  const auto found = kinds_.find(key);
  if (found != kinds_.end()) return found->second;
  const MicroBatchRecording recording =
      RecordMicroBatch(run, layers.first, ExecutorOf(shared.mode, cluster_));
  const auto price = [&](PieceKind kind) {
    return PriceOf(kind, recording, run.layout, shared.pricer);
  };
  return kinds_
      .emplace(key, KindCosts{.embedding = price(PieceKind::kEmbedding),
                              .layer = price(PieceKind::kLayer),
                              .head = price(PieceKind::kHead),
                              .input_bytes = recording.input_bytes})
      .first->second;
}

const MicroBatchCosts& ClosedFormEstimator::Impl::MicroBatchOf(size_t setting,
                                                               const RunConfig& run) {
  const RecomputeConfig& recompute = run.layout.recompute;
  const uint64_t key = ShapeKey(setting, run.layout)
                           .Put(static_cast<int64_t>(recompute.kind), 1)
                           .Put(recompute.num_layers + 1, 15)
                           .key();
  const auto found = micro_batches_.find(key);
  if (found != micro_batches_.end()) return found->second;
  const std::vector<LayerRun> runs = RunsOf(settings_[setting].first_alike, recompute);
  const KindCosts& ends = KindOf(setting, run, runs.front());
  PassCosts all;
  all.AppendForward(ends.embedding, 1);
  for (const LayerRun& each : runs) all.AppendForward(KindOf(setting, run, each).layer, each.count);
  all.AppendForward(ends.head, 1);
  all.AppendBackward(ends.head, 1);
  for (size_t i = runs.size(); i-- > 0;) {
    all.AppendBackward(KindOf(setting, run, runs[i]).layer, runs[i].count);
  }
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
                           .Put(layout.zero >= 1 && layout.dp > 1 ? 1 : 0, 1)
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
