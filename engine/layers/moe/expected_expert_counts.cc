#include "engine/layers/moe/expected_expert_counts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "engine/base/units.h"

namespace trimtab {
namespace {

/// Adds the choices of tokens at positions [first, first + count), which are made in turn.
void AddInTurn(const MoeConfig& moe, int64_t first, int64_t count, std::vector<int64_t>& rows) {
  const int64_t choices = count * moe.router_topk;
  const int64_t each = choices / moe.num_experts;
  for (int64_t& row : rows) row += each;
  auto expert = static_cast<size_t>(first * moe.router_topk % moe.num_experts);
  for (int64_t left = choices % moe.num_experts; left > 0; --left) {
    ++rows[expert];
    if (++expert == rows.size()) expert = 0;
  }
}

/// Makes the rows of this rank's experts so many times as many, at the cost of the others'.
void FillOwnExperts(const LayerContext& context, std::vector<int64_t>& rows) {
  const int64_t experts = std::ssize(rows);
  const int64_t own = experts / context.parallel.layout.ep;
  const auto begin = rows.begin() + context.parallel.ep_rank * own;
  const int64_t mean = std::accumulate(begin, begin + own, int64_t{0});
  const double more = (context.routing.imbalance_factor - 1) * static_cast<double>(mean);
  int64_t wanted = std::llround(more);
  if (wanted == 0) return;
  int64_t others = experts - own;
  int64_t moved = 0;
  for (auto each = rows.begin(); each != rows.end() && others > 0; ++each) {
    if (each >= begin && each < begin + own) continue;
    const int64_t taken = std::min(*each, CeilDiv(wanted, others--));
    *each -= taken;
    wanted -= taken;
    moved += taken;
  }
  for (int64_t left = own; left > 0; --left) {
    const int64_t given = CeilDiv(moved, left);
    begin[left - 1] += given;
    moved -= given;
  }
}

}  // namespace

int64_t PaddedRows(const LayerContext& context, const MoeConfig& moe) {
  if (!moe.pad_to_capacity) return 0;
  const int64_t share = context.sequence / context.parallel.layout.cp;
  const int64_t taken = context.micro_batch * std::min(moe.capacity(context.sequence), share);
  return std::min(taken, context.rows());
}

bool RowsAreKnown(const LayerContext& context, const MoeConfig& moe) {
  const int64_t in_turn = CeilDiv(moe.router_topk * context.sequence, moe.num_experts);
  return PaddedRows(context, moe) > 0 ||
         (context.routing.force_balance && moe.capacity(context.sequence) >= in_turn);
}

std::vector<int64_t> ExpectedExpertCounts(const LayerContext& context, const MoeConfig& moe,
                                          int rank) {
  const auto experts = static_cast<size_t>(moe.num_experts);
  if (const int64_t padded = PaddedRows(context, moe); padded > 0) {
    return std::vector<int64_t>(experts, padded);
  }
  const RankPlace place = PlaceOf(context.parallel.layout, rank);
  const int64_t begin = context.sequence_parallel() ? place.tp * context.rows() : 0;
  std::vector<int64_t> rows(experts);
  if (!context.routing.force_balance) {
    AddInTurn(moe, begin, context.rows(), rows);
    FillOwnExperts(context, rows);
  } else {
    const RowLayout held =
        RowLayout::ZigZag(1, context.sequence, context.parallel.layout.cp, place.cp);
    for (int64_t b = 0; b < context.micro_batch; ++b) {
      // The two runs of positions that the rank has of a sequence.
      for (const bool second : {false, true}) {
        const int64_t run = second ? held.run : 0;
        const int64_t size = second ? held.sequence - held.run : held.run;
        const int64_t row = b * held.sequence + run;
        const int64_t first = std::max(begin, row);
        const int64_t count = std::min(begin + context.rows(), row + size) - first;
        if (count > 0) AddInTurn(moe, held.offset(run + first - row), count, rows);
      }
    }
  }
  const int64_t most = context.micro_batch * moe.capacity(context.sequence);
  for (int64_t& each : rows) each = std::min(each, most);
  return rows;
}

ExpertCounts ExpectedExpertCounts(const LayerContext& context, const MoeConfig& moe,
                                  const std::vector<int>& ranks) {
  // Which tokens a rank has follows from its places along tp and cp, and where they do not choose
  // in turn, only how many matter: many ranks have as many; all, where that is as many for each
  // expert.
  const bool even =
      !context.routing.force_balance && context.rows() * moe.router_topk % moe.num_experts == 0;
  std::map<std::pair<int, int>, size_t> kind_at;
  ExpertCounts rows(moe.num_experts);
  for (const int rank : ranks) {
    const RankPlace place = even ? RankPlace{} : PlaceOf(context.parallel.layout, rank);
    const int cp = context.routing.force_balance ? place.cp : 0;
    const auto [known, is_new] = kind_at.try_emplace({place.tp, cp});
    if (is_new) {
      known->second = rows.Add(ExpectedExpertCounts(context, moe, rank));
    } else {
      rows.AddLike(known->second);
    }
  }
  return rows;
}

}  // namespace trimtab
