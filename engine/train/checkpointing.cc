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

/// Calls move(kind, parameter, overlap, tensor) for everything of this rank's weights and moments.
template <typename Move>
void ForEachSlice(Trainer& trainer, const Move& move) {
  ParameterStore& store = trainer.parameters();
  Optimizer& optimizer = trainer.optimizer();
  for (const Parameter* parameter : store.parameters()) {
    const Overlap whole = {0, parameter->numel()};
    move(StateKind::kWeight, *parameter, whole,
         store.weights().Slice(parameter->offset, {whole.numel}));
    const Overlap own = OverlapWith(*parameter, optimizer.shard_begin(), optimizer.shard_end());
    if (own.numel == 0) continue;
    const int64_t offset = parameter->offset + own.begin - optimizer.shard_begin();
    move(StateKind::kFirstMoment, *parameter, own, optimizer.m().Slice(offset, {own.numel}));
    move(StateKind::kSecondMoment, *parameter, own, optimizer.v().Slice(offset, {own.numel}));
  }
}

}  // namespace

void WriteState(Trainer& trainer, CheckpointWriter& writer) {
  const ParallelContext& parallel = trainer.parallel();
  const bool moments_sharded = parallel.layout.zero >= 1 && parallel.layout.dp > 1;
  std::vector<float> host;
  ForEachSlice(trainer, [&](StateKind kind, const Parameter& parameter, const Overlap& part,
                            const Tensor& tensor) {
    // Of copies that are the same on several ranks, the first rank's is written.
    if (!parameter.spec.tensor_parallel && parallel.tp_rank != 0) return;
    const bool sharded = kind != StateKind::kWeight && moments_sharded;
    if (!sharded && parallel.dp_rank != 0) return;
    host.resize(static_cast<size_t>(part.numel));
    CopyToHost(tensor, host);
    writer.Write(kind, {.spec = &parameter.spec, .begin = part.begin, .values = host});
  });
}

void ReadState(Trainer& trainer, const CheckpointReader& reader) {
  std::vector<float> host;
  ForEachSlice(trainer,
               [&](StateKind kind, const Parameter& parameter, const Overlap& part, Tensor tensor) {
                 host.assign(static_cast<size_t>(part.numel), 0.0f);  // padding is in no checkpoint
                 reader.Read(kind, {.spec = &parameter.spec, .begin = part.begin, .values = host});
                 CopyFromHost(tensor, host);
               });
}

std::vector<const ParameterSpec*> ParameterSpecs(Trainer& trainer) {
  std::vector<const ParameterSpec*> specs;
  for (const Parameter* parameter : trainer.parameters().parameters()) {
    specs.push_back(&parameter->spec);
  }
  return specs;
}

}  // namespace trimtab
