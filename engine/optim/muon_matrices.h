// The matrices that Muon updates on this rank, each of which some rank must see whole.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/parallel/parameter_shards.h"

namespace trimtab {

/// A matrix of a parameter: one of its fused projections (a segment of its partition), or one of
/// its stacked experts. Ranks that split it (tp, or etp of experts) have parts of equal size.
struct MuonMatrix {
  size_t unit = 0;
  FlatRange local;  // this rank's part, [rows, columns]
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t whole_rows = 0;
  int64_t whole_columns = 0;
  int64_t copies = 1;  // neighbouring splitting ranks that have the same part
  // The rank that sees it whole: in the shard group, and among those that split it.
  int shard_owner = 0;
  int split_owner = 0;

  int64_t numel() const { return rows * columns; }
  /// Returns true if parts are columns.
  bool by_columns() const { return columns < whole_columns; }
};

/// Matrices that are brought together at once, in the order of their owners.
struct MuonRound {
  ParallelGrid grid = ParallelGrid::kDense;
  std::vector<MuonMatrix> matrices;
};

/// Elements of this rank's parts from which on a round is full: what a round sends and receives
/// stands in memory.
inline constexpr int64_t kMuonRoundElements = int64_t{1} << 24;

/// Returns true if Muon updates the parameter: matrices that hidden states are multiplied by, but
/// not what stands for tokens (tables, the output projection).
bool TakesMuon(const ParameterSpec& spec);

/// Returns where this rank's parts of a parameter's matrices are in the flat order.
std::vector<FlatRange> MuonPartsOf(const Parameter& parameter);

/// Plans the rounds of this rank's stage. Each matrix goes to the rank that has least to do yet,
/// the largest first: all ranks of the stage plan alike.
std::vector<MuonRound> PlanMuonRounds(const ParallelContext& parallel,
                                      const ParameterShards& shards);

/// Returns the communicator of the ranks that split matrices over `grid`.
Communicator& SplitGroup(const ParallelContext& parallel, ParallelGrid grid);

}  // namespace trimtab
