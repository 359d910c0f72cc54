#include "engine/train/checkpoint_state.h"

#include <algorithm>
#include <functional>

namespace trimtab {
namespace {

constexpr int64_t kChunkNumel = int64_t{1} << 20;  // staging memory of a rank: 4 MiB

/// One state tensor of a rank: flat elements [begin, begin + data.numel()) of its parameters.
struct FlatState {
  StateKind kind;
  Tensor data;
  int64_t begin = 0;
};

std::vector<FlatState> FlatStates(Trainer& trainer) {
  Optimizer& optimizer = trainer.optimizer();
  return {{StateKind::kWeight, trainer.parameters().weights(), 0},
          {StateKind::kFirstMoment, optimizer.m(), optimizer.shard_begin()},
          {StateKind::kSecondMoment, optimizer.v(), optimizer.shard_begin()}};
}

/// Cuts the part of `parameter` that `state` holds into chunks: `visit(part, begin)` gets the
/// tensor of a chunk and its first element within the parameter.
void ForEachChunk(const Parameter& parameter, const FlatState& state,
                  const std::function<void(Tensor part, int64_t begin)>& visit) {
  const int64_t first = std::max(parameter.offset, state.begin);
  const int64_t last =
      std::min(parameter.offset + parameter.numel(), state.begin + state.data.numel());
  for (int64_t at = first; at < last; at += kChunkNumel) {
    const int64_t count = std::min(kChunkNumel, last - at);
    visit(state.data.Slice(at - state.begin, {count}), at - parameter.offset);
  }
}

/// Whether this rank is the one of all that hold the same elements that writes them.
bool Writes(const Trainer& trainer, const Parameter& parameter, const FlatState& state,
            int64_t padded_numel) {
  const ParallelContext& parallel = trainer.parallel();
  const bool sharded_over_dp = state.data.numel() < padded_numel;
  if (!sharded_over_dp && parallel.dp_rank != 0) return false;
  return parameter.spec.tensor_parallel || parallel.tp_rank == 0;
}

}  // namespace

std::vector<const ParameterSpec*> CheckpointParameters(Trainer& trainer) {
  std::vector<const ParameterSpec*> specs;
  for (const Parameter* parameter : trainer.parameters().parameters()) {
    specs.push_back(&parameter->spec);
  }
  return specs;
}

void SaveState(Trainer& trainer, CheckpointWriter& writer) {
  std::vector<float> staging(static_cast<size_t>(kChunkNumel));
  const int64_t padded_numel = trainer.parameters().padded_numel();
  for (const FlatState& state : FlatStates(trainer)) {
    for (const Parameter* parameter : trainer.parameters().parameters()) {
      if (!Writes(trainer, *parameter, state, padded_numel)) continue;
      ForEachChunk(*parameter, state, [&](Tensor part, int64_t begin) {
        const std::span<float> values(staging.data(), static_cast<size_t>(part.numel()));
        CopyToHost(part, values);
        writer.Write(state.kind, {&parameter->spec, begin, values});
      });
    }
  }
}

void LoadState(Trainer& trainer, const CheckpointReader& reader) {
  std::vector<float> staging(static_cast<size_t>(kChunkNumel));
  for (const FlatState& state : FlatStates(trainer)) {
    for (const Parameter* parameter : trainer.parameters().parameters()) {
      ForEachChunk(*parameter, state, [&](Tensor part, int64_t begin) {
        const std::span<float> values(staging.data(), static_cast<size_t>(part.numel()));
        std::fill(values.begin(), values.end(), 0.0f);  // vocabulary padding is in no checkpoint
        reader.Read(state.kind, {&parameter->spec, begin, values});
        CopyFromHost(part, std::span<const float>(values));
      });
    }
  }
}

}  // namespace trimtab
