#include "engine/train/checkpointing.h"

#include <algorithm>

namespace trimtab {
namespace {

/// Elements of a parameter.
struct Part {
  int64_t begin = 0;
  int64_t numel = 0;
};

/// Calls move(kind, parameter, part) for the elements of this rank's state that it updates; of the
/// weights, for all with `whole_weights`.
template <typename Move>
void ForEachSlice(Trainer& trainer, bool whole_weights, const Move& move) {
  for (const Parameter* parameter : trainer.parameters().parameters()) {
    const OwnedPart owned =
        trainer.shards().Within({parameter->offset, parameter->offset + parameter->numel()});
    const Part own = {owned.begin - parameter->offset, owned.numel};
    const Part weights = whole_weights ? Part{0, parameter->numel()} : own;
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
  // Where every data-parallel rank has the same, the first one's is written.
  if (!trainer.shards().updates_sharded() && parallel.dp->rank() != 0) return;
  const Optimizer& optimizer = trainer.optimizer();
  std::vector<float> host;
  ForEachSlice(trainer, /*whole_weights=*/false,
               [&](StateKind kind, const Parameter& parameter, const Part& part) {
                 // So with tensor-parallel ranks.
                 if (!parameter.spec.tensor_parallel && parallel.tp_rank != 0) return;
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
  ForEachSlice(trainer, /*whole_weights=*/!trainer.shards().weights_sharded(),
               [&](StateKind kind, const Parameter& parameter, const Part& part) {
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
