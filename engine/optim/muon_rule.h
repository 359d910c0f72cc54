// Muon (Jordan et al., "Muon: An optimizer for hidden layers", 2024) as Moonlight scales it (Liu et
// al., arXiv:2502.16982): the momentum of a matrix is orthogonalised, so that all its directions
// move alike. What is no matrix of a layer takes AdamW.
//
// State is sharded like any other's: one momentum for each element. Each matrix is orthogonalised
// by one rank, which MuonExchange brings it to; where there are several replicas, by the first, and
// the others get what it made, so that all have the same bits.
#pragma once

#include <span>
#include <vector>

#include "engine/optim/muon_exchange.h"
#include "engine/optim/muon_matrices.h"
#include "engine/optim/update_rule.h"

namespace trimtab {

class MuonRule final : public UpdateRule {
 public:
  MuonRule(const OptimizerConfig& config, const ParallelContext& parallel,
           const ParameterShards& shards, std::span<const UpdateRun> runs);

  void Update(const UpdateInputs& inputs, std::span<const UpdateRun> runs) override;

 private:
  /// Elements of a matrix that are in one run.
  struct Piece {
    UpdateRun run;      // cut to them
    int64_t begin = 0;  // among the pieces of the round
    float scale = 1;    // of the update
  };
  struct Round {
    ParallelGrid grid = ParallelGrid::kDense;
    MuonExchange exchange;
    std::vector<Piece> pieces;
  };

  std::vector<Piece> PiecesOf(const MuonExchange& exchange, const MuonRound& round,
                              std::span<const UpdateRun> runs) const;
  void UpdateRound(const UpdateInputs& inputs, const Round& round) const;

  float momentum_;
  bool nesterov_;
  DType dtype_;  // that matrices are sent and orthogonalised in
  std::vector<MuonRound> plan_;
  std::vector<Round> rounds_;
};

}  // namespace trimtab
