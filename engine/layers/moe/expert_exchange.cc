#include "engine/layers/moe/expert_exchange.h"

#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/moe/permute.h"

namespace trimtab {
namespace {

/// Parts of a buffer of rows, as parts of its elements.
std::vector<BufferPart> Elements(const std::vector<BufferPart>& rows, int64_t columns) {
  std::vector<BufferPart> elements;
  for (const BufferPart& part : rows) {
    elements.push_back({part.begin * columns, part.count * columns});
  }
  return elements;
}

/// The rows [*, C] that come when `rows` go as `send` says.
Tensor AllToAllRows(const LayerContext& context, Communicator& group, const Tensor& rows,
                    const std::vector<BufferPart>& send, const std::vector<BufferPart>& receive,
                    MemoryTag tag) {
  const int64_t columns = rows.shape()[1];
  Tensor received = context.New({receive.back().begin + receive.back().count, columns}, tag);
  group.AllToAll(rows, Elements(send, columns), received, Elements(receive, columns));
  return received;
}

/// Appends a part of so many rows to those of a buffer.
void Append(std::vector<BufferPart>& parts, int64_t count) {
  const int64_t begin = parts.empty() ? 0 : parts.back().begin + parts.back().count;
  parts.push_back({begin, count});
}

}  // namespace

ExpertExchange::ExpertExchange(const LayerContext& context, const ExpertCounts& counts,
                               const Tensor& counted) {
  const ParallelContext& parallel = context.parallel;
  const int etp = parallel.etp->size();
  const int ep = parallel.ep->size();
  const int64_t local = counts.experts() / ep;
  const ExpertRange own = {parallel.ep->rank() * local, local};
  // Rank numbers in the group run along etp first.
  const auto rows_of = [&](int etp_rank, int ep_rank, const ExpertRange& experts) {
    return counts.Count(etp_rank + etp * ep_rank, experts);
  };
  for (int peer = 0; peer < ep; ++peer) {
    Append(to_ep_, rows_of(parallel.etp->rank(), parallel.ep->rank(), {peer * local, local}));
    Append(from_ep_, rows_of(parallel.etp->rank(), peer, own));
  }
  arrived_ = from_ep_.back().begin + from_ep_.back().count;
  for (int sharer = 0; sharer < etp; ++sharer) {
    to_etp_.push_back({0, arrived_});
    int64_t sum = 0;
    for (int peer = 0; peer < ep; ++peer) sum += rows_of(sharer, peer, own);
    Append(from_etp_, sum);
  }
  rows_ = from_etp_.back().begin + from_etp_.back().count;
  expert_rows_ = counts.SumOverRanks(own);
  if (etp * ep > 1) PlanOrder(context, own, counted);
}

void ExpertExchange::PlanOrder(const LayerContext& context, const ExpertRange& own,
                               const Tensor& counted) {
  const auto ids = [&] {
    return Tensor::Empty(context.device, {rows_}, DType::kI32, MemoryTag::kActivations);
  };
  by_expert_ = ids();
  by_rank_ = ids();
  OrderArrivals(counted, context.parallel.etp->size(), own, by_expert_, by_rank_);
}

Tensor ExpertExchange::Send(const LayerContext& context, const Tensor& rows, MemoryTag tag) const {
  const ParallelContext& parallel = context.parallel;
  if (!by_expert_.defined()) return rows;
  Tensor came = AllToAllRows(context, *parallel.ep, rows, to_ep_, from_ep_, MemoryTag::kWorkspace);
  if (parallel.etp->size() > 1) {
    came = AllToAllRows(context, *parallel.etp, came, to_etp_, from_etp_, MemoryTag::kWorkspace);
  }
  Tensor sorted = context.New({rows_, rows.shape()[1]}, tag);
  Permute(came, by_expert_, /*topk=*/1, sorted);
  return sorted;
}

Tensor ExpertExchange::Return(const LayerContext& context, const Tensor& rows,
                              MemoryTag tag) const {
  const ParallelContext& parallel = context.parallel;
  if (!by_expert_.defined()) return rows;
  const int64_t columns = rows.shape()[1];
  Tensor as_came = context.New({rows_, columns}, MemoryTag::kWorkspace);
  Permute(rows, by_rank_, /*topk=*/1, as_came);
  const int etp = parallel.etp->size();
  if (etp > 1) {
    std::vector<BufferPart> pieces;
    for (int sharer = 0; sharer < etp; ++sharer) Append(pieces, arrived_);
    const Tensor all =
        AllToAllRows(context, *parallel.etp, as_came, from_etp_, pieces, MemoryTag::kWorkspace);
    as_came = all.Slice(0, {arrived_, columns});
    for (int sharer = 1; sharer < etp; ++sharer) {
      Add(all.Slice(sharer * arrived_ * columns, {arrived_, columns}), as_came);
    }
  }
  return AllToAllRows(context, *parallel.ep, as_came, from_ep_, to_ep_, tag);
}

}  // namespace trimtab
