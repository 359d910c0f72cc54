#include "engine/optim/muon_matrices.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace trimtab {
namespace {

/// The matrices of a parameter, without owners.
std::vector<MuonMatrix> MatricesOf(const Parameter& parameter, int64_t split) {
  const ParameterSpec& spec = parameter.spec;
  const Partition& partition = spec.partition;
  // Experts stand below each other: in segments of their own, or all in one.
  const bool stacked = spec.grid == ParallelGrid::kExperts && partition.segments.size() == 1;
  const int64_t stack = stacked ? spec.multiplied : 1;
  std::vector<MuonMatrix> matrices;
  for (const RowSegment& segment : partition.segments) {
    MuonMatrix matrix = {.unit = parameter.unit,
                         .local = {},
                         .rows = segment.rows / stack,
                         .columns = spec.columns,
                         .whole_columns = partition.full_columns};
    const bool copied = spec.copied.copies > 1 && segment.local_begin >= spec.copied.first;
    if (!spec.tensor_parallel) {
      matrix.copies = split;
    } else if (copied) {
      matrix.copies = spec.copied.copies;
    }
    matrix.whole_rows = matrix.by_columns() ? matrix.rows : matrix.rows * (split / matrix.copies);
    for (int64_t i = 0; i < stack; ++i) {
      const int64_t first = segment.local_begin + i * matrix.rows;
      matrix.local.begin = parameter.offset + first * spec.columns;
      matrix.local.end = matrix.local.begin + matrix.numel();
      matrices.push_back(matrix);
    }
  }
  return matrices;
}

/// What orthogonalising it costs, to compare.
double CostOf(const MuonMatrix& matrix) {
  const auto least = static_cast<double>(std::min(matrix.whole_rows, matrix.whole_columns));
  const auto most = static_cast<double>(std::max(matrix.whole_rows, matrix.whole_columns));
  return least * least * (2 * most + least);
}

void GiveOwners(int shards, int split, std::vector<MuonMatrix>& matrices) {
  std::vector<size_t> order(matrices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](size_t i) { return CostOf(matrices[i]); });
  std::vector<double> loads(static_cast<size_t>(shards * split));
  for (const size_t i : order) {
    const auto least = std::ranges::min_element(loads);
    *least += CostOf(matrices[i]);
    const auto owner = static_cast<int>(least - loads.begin());
    matrices[i].shard_owner = owner / split;
    matrices[i].split_owner = owner % split;
  }
  std::ranges::stable_sort(matrices, {}, [](const MuonMatrix& each) {
    return std::tuple(each.shard_owner, each.split_owner);
  });
}

}  // namespace

bool TakesMuon(const ParameterSpec& spec) {
  return spec.is_matrix && spec.multiplied > 0 && !spec.looked_up && !spec.vocabulary;
}

std::vector<FlatRange> MuonPartsOf(const Parameter& parameter) {
  std::vector<FlatRange> parts;
  for (const MuonMatrix& matrix : MatricesOf(parameter, /*split=*/1)) {
    parts.push_back(matrix.local);
  }
  return parts;
}

Communicator& SplitGroup(const ParallelContext& parallel, ParallelGrid grid) {
  return grid == ParallelGrid::kDense ? *parallel.tp : *parallel.etp;
}

std::vector<MuonRound> PlanMuonRounds(const ParallelContext& parallel,
                                      const ParameterShards& shards) {
  std::vector<MuonRound> rounds;
  for (const ParallelGrid grid : {ParallelGrid::kDense, ParallelGrid::kExperts}) {
    const int split = SplitGroup(parallel, grid).size();
    int64_t elements = kMuonRoundElements;  // of the last round: full before there is one
    for (const ParameterUnit& unit : shards.store().units()) {
      if (!unit.trainable || unit.grid != grid) continue;
      for (const Parameter* parameter : shards.store().ParametersOf(unit)) {
        if (!TakesMuon(parameter->spec)) continue;
        for (const MuonMatrix& matrix : MatricesOf(*parameter, split)) {
          if (elements >= kMuonRoundElements) {
            rounds.push_back({.grid = grid, .matrices = {}});
            elements = 0;
          }
          elements += matrix.numel();
          rounds.back().matrices.push_back(matrix);
        }
      }
    }
  }
  for (MuonRound& round : rounds) {
    GiveOwners(shards.shard_group(round.grid).size(), SplitGroup(parallel, round.grid).size(),
               round.matrices);
  }
  return rounds;
}

}  // namespace trimtab
