#include "engine/train/checkpointing.h"

#include <algorithm>

namespace trimtab {
namespace {

/// The part of `parameter` that lies in [begin, end) of the flat buffer.
struct Overlap {
  int64_t begin = 0;  // elements into the parameter
  int64_t numel = 0;
};

Overlap OverlapWith(const Parameter& parameter, int64_t begin, int64_t end) {
  const int64_t first = std::max(parameter.offset, begin);
  const int64_t last = std::min(parameter.offset + parameter.numel(), end);
  return {first - parameter.offset, std::max<int64_t>(last - first, 0)};
}

/// Whether the fp32 weights, like the moments, are spread over the data-parallel ranks.
bool WeightsSharded(const Optimizer& optimizer) {
  return optimizer.sharded() && optimizer.has_master();
}

/// Calls move(kind, parameter, overlap) for everything of this rank's state that a checkpoint
/// holds.
template <typename Move>
void ForEachSlice(Trainer& trainer, bool whole_weights, const Move& move) {
  const Optimizer& optimizer = trainer.optimizer();
  for (const Parameter* parameter : trainer.parameters().parameters()) {
    const Overlap whole = {0, parameter->numel()};
    const Overlap own = OverlapWith(*parameter, optimizer.shard_begin(), optimizer.shard_end());
    const Overlap& weights = whole_weights ? whole : own;
    if (weights.numel > 0) move(StateKind::kWeight, *parameter, weights);
    if (own.numel == 0) continue;
    move(StateKind::kFirstMoment, *parameter, own);
    move(StateKind::kSecondMoment, *parameter, own);
  }
}

Optimizer::Moment MomentOf(StateKind kind) {
  return kind == StateKind::kFirstMoment ? Optimizer::Moment::kFirst : Optimizer::Moment::kSecond;
}

}  // namespace

CheckpointHeader HeaderOf(Trainer& trainer, int64_t step) {
  const RunConfig& run = trainer.run();
  CheckpointHeader header = {.run = run, .step = step, .samples = step * run.global_batch};
  if (TypesOf(run.layout).loss_scaling) {
    const LossScaler& scaler = trainer.loss_scaler();
    header.loss_scale = {scaler.scale(), scaler.good_steps(), scaler.skipped()};
  }
  if (trainer.fp8() != nullptr) header.fp8 = trainer.fp8()->Snapshot();
  return header;
}

void WriteState(Trainer& trainer, CheckpointWriter& writer) {
  const ParallelContext& parallel = trainer.parallel();
  const Optimizer& optimizer = trainer.optimizer();
  const bool weights_sharded = WeightsSharded(optimizer);
  std::vector<float> host;
  ForEachSlice(trainer, !weights_sharded,
               [&](StateKind kind, const Parameter& parameter, const Overlap& part) {
                 // Of copies that are the same on several ranks, the first rank's is written.
                 if (!parameter.spec.tensor_parallel && parallel.tp_rank != 0) return;
                 const bool sharded =
                     kind == StateKind::kWeight ? weights_sharded : optimizer.sharded();
                 if (!sharded && parallel.dp->rank() != 0) return;
                 host.resize(static_cast<size_t>(part.numel));
                 const int64_t begin = parameter.offset + part.begin;
                 if (kind == StateKind::kWeight) {
                   optimizer.ReadWeights(begin, host);
                 } else {
                   optimizer.ReadMoments(MomentOf(kind), begin, host);
                 }
                 writer.Write(kind, {.spec = &parameter.spec, .begin = part.begin, .values = host});
               });
}

void ReadState(Trainer& trainer, const CheckpointReader& reader) {
  Optimizer& optimizer = trainer.optimizer();
  std::vector<float> host;
  ForEachSlice(trainer, /*whole_weights=*/true,
               [&](StateKind kind, const Parameter& parameter, const Overlap& part) {
                 host.assign(static_cast<size_t>(part.numel), 0.0f);  // padding is in no checkpoint
                 reader.Read(kind, {.spec = &parameter.spec, .begin = part.begin, .values = host});
                 const int64_t begin = parameter.offset + part.begin;
                 if (kind == StateKind::kWeight) {
                   optimizer.WriteWeights(begin, host);
                 } else {
                   optimizer.WriteMoments(MomentOf(kind), begin, host);
                 }
               });
  const LossScaleState& scale = reader.header().loss_scale;
  if (scale.scale > 0) {
    trainer.loss_scaler().Restore(scale.scale, scale.good_steps, scale.skipped);
  }
  if (trainer.fp8() != nullptr) trainer.fp8()->Restore(reader.header().fp8);
  trainer.WeightsChanged();
}

std::vector<const ParameterSpec*> ParameterSpecs(Trainer& trainer) {
  std::vector<const ParameterSpec*> specs;
  for (const Parameter* parameter : trainer.parameters().parameters()) {
    specs.push_back(&parameter->spec);
  }
  return specs;
}

}  // namespace trimtab
