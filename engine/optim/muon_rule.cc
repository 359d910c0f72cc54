#include "engine/optim/muon_rule.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/optimizer/momentum.h"
#include "engine/optim/orthogonalize.h"

namespace trimtab {
namespace {

/// Moonlight's: an update is then as large, by root mean square, as AdamW's usually are, and takes
/// the same learning rate and weight decay.
float UpdateScale(const MuonMatrix& matrix) {
  const int64_t longest = std::max(matrix.whole_rows, matrix.whole_columns);
  return static_cast<float>(0.2 * std::sqrt(static_cast<double>(longest)));
}

}  // namespace

MuonRule::MuonRule(const OptimizerConfig& config, const ParallelContext& parallel,
                   const ParameterShards& shards, std::span<const UpdateRun> runs)
    : momentum_(static_cast<float>(config.momentum)),
      nesterov_(config.nesterov),
      dtype_(TypesOf(parallel.layout.numerics).weights == DType::kF32 ? DType::kF32 : DType::kBf16),
      plan_(PlanMuonRounds(parallel, shards)) {
  for (const MuonRound& round : plan_) {
    rounds_.push_back({round.grid, MuonExchange(parallel, shards, round), {}});
    rounds_.back().pieces = PiecesOf(rounds_.back().exchange, round, runs);
  }
}

std::vector<MuonRule::Piece> MuonRule::PiecesOf(const MuonExchange& exchange,
                                                const MuonRound& round,
                                                std::span<const UpdateRun> runs) const {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < round.matrices.size(); ++i) {
    const MuonExchange::Piece& own = exchange.pieces()[i];
    const int64_t end = own.part.shard_begin + own.part.numel;
    auto run = std::ranges::partition_point(
        runs, [&](const UpdateRun& each) { return each.shard_end() <= own.part.shard_begin; });
    for (int64_t at = own.part.shard_begin; at < end; ++run) {
      const int64_t within = at - run->part.shard_begin;
      const int64_t count = std::min(end, run->shard_end()) - at;
      Piece piece = {.run = *run,
                     .begin = own.begin + at - own.part.shard_begin,
                     .scale = UpdateScale(round.matrices[i])};
      piece.run.part = {run->part.begin + within, at, count};
      piece.run.state_begin += within;
      piece.run.first_block += within / kMomentBlock;
      pieces.push_back(piece);
      at += count;
    }
  }
  return pieces;
}

void MuonRule::Update(const UpdateInputs& inputs, std::span<const UpdateRun> /*runs*/) {
  for (const Round& round : rounds_) UpdateRound(inputs, round);
}

void MuonRule::UpdateRound(const UpdateInputs& inputs, const Round& round) const {
  Tensor updates = Tensor::Empty(inputs.shards.device(), {round.exchange.numel()}, dtype_,
                                 MemoryTag::kCommunication);
  for (const Piece& piece : round.pieces) {
    const UpdateRun& run = piece.run;
    MomentumState state = {
        .momentum = inputs.state[0].At(run.state_begin, run.part.numel, run.first_block),
        .update = updates.Slice(piece.begin, {run.part.numel})};
    MomentumUpdate({.momentum = momentum_, .nesterov = nesterov_}, inputs.scalars,
                   inputs.shards.Gradients(run.part), state);
  }
  Communicator& replicas = inputs.shards.replica_group(round.grid);
  if (replicas.rank() == 0) round.exchange.ForEachWhole(updates, Orthogonalize);
  if (replicas.size() > 1 && updates.numel() > 0) replicas.Broadcast(updates, /*root=*/0);
  for (const Piece& piece : round.pieces) {
    const UpdateRun& run = piece.run;
    MomentumState state = {
        .weight = {inputs.shards.Weights(run.part), inputs.shards.Masters(run.part)}};
    MomentumUpdate({.weight_decay = run.setting.weight_decay,
                    .learning_rate_factor = run.setting.learning_rate_factor,
                    .update_scale = piece.scale},
                   inputs.scalars, updates.Slice(piece.begin, {run.part.numel}), state);
  }
}

}  // namespace trimtab
