#include "engine/layers/expert_exchange.h"

#include <utility>

#include "engine/ops/elementwise.h"
#include "engine/ops/permute.h"

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

ExpertExchange::ExpertExchange(const LayerContext& context, std::vector<int64_t> counts,
                               const Tensor& counted)
    : counts_(std::move(counts)) {
  const ParallelContext& parallel = context.parallel;
  const int etp = parallel.etp->size();
  const int ep = parallel.ep->size();
  experts_ = static_cast<int64_t>(counts_.size()) / (etp * ep);
  local_experts_ = experts_ / ep;
  const int64_t first = parallel.ep->rank() * local_experts_;
  // Rank numbers in the group run along etp first.
  const auto rows_of = [&](int etp_rank, int ep_rank, int64_t first_expert) {
    int64_t sum = 0;
    for (int64_t e = first_expert; e < first_expert + local_experts_; ++e) {
      sum += count(etp_rank + etp * ep_rank, e);
    }
    return sum;
  };
  const int own = parallel.etp->rank();
  for (int peer = 0; peer < ep; ++peer) {
    Append(to_ep_, rows_of(own, parallel.ep->rank(), peer * local_experts_));
    Append(from_ep_, rows_of(own, peer, first));
  }
  sent_ = to_ep_.back().begin + to_ep_.back().count;
  arrived_ = from_ep_.back().begin + from_ep_.back().count;
  for (int sharer = 0; sharer < etp; ++sharer) {
    to_etp_.push_back({0, arrived_});
    int64_t sum = 0;
    for (int peer = 0; peer < ep; ++peer) sum += rows_of(sharer, peer, first);
    Append(from_etp_, sum);
  }
  rows_ = from_etp_.back().begin + from_etp_.back().count;
  for (int64_t e = first; e < first + local_experts_; ++e) {
    int64_t sum = 0;
    for (int rank = 0; rank < etp * ep; ++rank) sum += count(rank, e);
    expert_rows_.push_back(sum);
  }
  if (etp * ep > 1) PlanOrder(context, counted);
}

void ExpertExchange::PlanOrder(const LayerContext& context, const Tensor& counted) {
  const auto ids = [&] {
    return Tensor::Empty(context.device, {rows_}, DType::kI32, MemoryTag::kActivations);
  };
  by_expert_ = ids();
  by_rank_ = ids();
  const ExpertRange own = {context.parallel.ep->rank() * local_experts_, local_experts_};
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
