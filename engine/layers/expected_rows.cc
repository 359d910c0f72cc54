#include "engine/layers/expected_rows.h"

#include <algorithm>

namespace trimtab {
namespace {

/// Adds the choices of tokens at positions [first, first + count), which are made in turn.
void AddInTurn(const MoeConfig& moe, int64_t first, int64_t count, std::vector<int64_t>& rows) {
  const int64_t choices = count * moe.router_topk;
  const int64_t begin = first * moe.router_topk % moe.num_experts;
  for (int64_t i = 0; i < moe.num_experts; ++i) {
    // The experts in turn, from the first one on.
    const auto expert = static_cast<size_t>((begin + i) % moe.num_experts);
    rows[expert] += choices / moe.num_experts + (i < choices % moe.num_experts ? 1 : 0);
  }
}

}  // namespace

int64_t PaddedRows(const LayerContext& context) {
  const MoeConfig& moe = context.model.moe;
  if (!moe.pad_to_capacity) return 0;
  const int64_t share = context.positions().sequence;
  const int64_t taken = context.micro_batch * std::min(moe.capacity(context.sequence), share);
  return std::min(taken, context.rows());
}

std::vector<int64_t> ExpectedRows(const LayerContext& context, int rank) {
  const MoeConfig& moe = context.model.moe;
  const auto experts = static_cast<size_t>(moe.num_experts);
  if (const int64_t padded = PaddedRows(context); padded > 0) {
    return std::vector<int64_t>(experts, padded);
  }
  const RankPlace place = PlaceOf(context.parallel.layout, rank);
  const int64_t begin = context.sequence_parallel() ? place.tp * context.rows() : 0;
  std::vector<int64_t> rows(experts);
  if (!context.routing.force_balance) {
    AddInTurn(moe, begin, context.rows(), rows);
  } else {
    const Positions positions =
        Positions::ZigZag(context.sequence, context.parallel.layout.cp, place.cp);
    for (int64_t b = 0; b < context.micro_batch; ++b) {
      // The two runs of positions that the rank has of a sequence.
      for (const bool second : {false, true}) {
        const int64_t run = second ? positions.run : 0;
        const int64_t size = second ? positions.sequence - positions.run : positions.run;
        const int64_t row = b * positions.sequence + run;
        const int64_t first = std::max(begin, row);
        const int64_t count = std::min(begin + context.rows(), row + size) - first;
        if (count > 0) AddInTurn(moe, positions.of(run + first - row), count, rows);
      }
    }
  }
  const int64_t most = context.micro_batch * moe.capacity(context.sequence);
  for (int64_t& each : rows) each = std::min(each, most);
  return rows;
}

}  // namespace trimtab
