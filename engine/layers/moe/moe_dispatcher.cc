#include "engine/layers/moe/moe_dispatcher.h"

#include <numeric>
#include <utility>

#include "engine/layers/moe/expected_expert_counts.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/moe/permute.h"
#include "engine/ops/moe/router.h"

namespace trimtab {
namespace {

/// Whether all ranks that together hold the experts see all their tokens.
bool Gathers(const LayerContext& context) {
  return context.parallel.layout.dispatch == Dispatch::kAllGather &&
         context.parallel.etp_ep->size() > 1;
}

/// `own` [rows, n] of all of those ranks, one after the other; without allgather `own` itself.
Tensor GatherTokens(const LayerContext& context, const Tensor& own) {
  if (!Gathers(context)) return own;
  Communicator& group = *context.parallel.etp_ep;
  Tensor all = Tensor::Empty(context.device, {group.size() * own.dim(0), own.dim(1)}, own.dtype(),
                             MemoryTag::kWorkspace);
  group.AllGather(own, all);
  return all;
}

/// The sum over those ranks of `all`, of which this rank gets its own rows, under `tag`; without
/// allgather `all` itself.
Tensor ScatterTokens(const LayerContext& context, Tensor all, MemoryTag tag) {
  if (!Gathers(context)) return all;
  Communicator& group = *context.parallel.etp_ep;
  Tensor own =
      Tensor::Empty(context.device, {all.dim(0) / group.size(), all.dim(1)}, all.dtype(), tag);
  group.ReduceScatter(all, own);
  return own;
}

/// What is scattered goes to another tensor.
MemoryTag TagOfAll(const LayerContext& context) {
  return Gathers(context) ? MemoryTag::kWorkspace : MemoryTag::kActivations;
}

/// What each of those ranks has for each expert, on the host; `counted` [etp_ep ranks, E] becomes
/// the same on the device.
ExpertCounts CountRows(const LayerContext& context, const MoeConfig& moe, const Tensor& kept,
                       Tensor& counted) {
  Communicator& group = *context.parallel.etp_ep;
  const int64_t experts = moe.num_experts;
  counted = context.NewF32({group.size(), experts}, MemoryTag::kWorkspace);
  if (const int64_t padded = PaddedRows(context, moe); padded > 0) {
    Fill(counted, static_cast<float>(padded));
  } else {  // choices made in turn stand for others, and are counted as those are
    Tensor own = counted.Rows(group.rank(), 1);
    CountChoices(kept, own, /*accumulate=*/false);
    group.AllGather(own, counted);
  }
  if (RowsAreKnown(context, moe) || context.device.kind() == DeviceKind::kMeta) {
    return ExpectedExpertCounts(
        context, moe,
        GroupMembers(context.parallel.layout, GroupKind::kExpertModel, context.parallel.rank));
  }
  std::vector<float> host(static_cast<size_t>(counted.numel()));
  CopyToHost(counted, host);
  return {experts, {host.begin(), host.end()}};
}

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

/// Rows [R, C] under `tag` of the tokens x [N, C] that choose `experts`, of which they have `rows`.
Tensor SortTokens(const LayerContext& context, const Tensor& x, const Tensor& kept,
                  const ExpertRange& experts, int64_t rows, int64_t padded_rows, MemoryTag tag,
                  MoeDispatch& dispatch) {
  const auto ids = [&context](const Shape& shape) {
    return Tensor::Empty(context.device, shape, DType::kI32, MemoryTag::kActivations);
  };
  dispatch.row_of = ids(kept.shape());
  dispatch.choice_of = ids({rows});
  SortByExpert(kept, experts, padded_rows, dispatch.row_of, dispatch.choice_of);
  Tensor sorted = context.New({rows, x.dim(1)}, tag);
  Permute(x, dispatch.choice_of, kept.dim(1), sorted);
  return sorted;
}

}  // namespace

Tensor DispatchTokens(const LayerContext& context, const MoeConfig& moe, const Tensor& x,
                      const Tensor& kept, MoeDispatch& dispatch) {
  const ParallelContext& parallel = context.parallel;
  const int64_t experts = moe.num_experts;
  const int64_t local = experts / parallel.layout.ep;
  Tensor counted;
  const ExpertCounts counts = CountRows(context, moe, kept, counted);
  const int64_t padded = PaddedRows(context, moe);
  if (parallel.etp_ep->size() == 1 || Gathers(context)) {
    const ExpertRange own = {parallel.ep_rank * local, local};
    dispatch.expert_rows = counts.SumOverRanks(own);
    return SortTokens(context, GatherTokens(context, x), GatherTokens(context, kept), own,
                      Sum(dispatch.expert_rows), padded * parallel.etp_ep->size(),
                      MemoryTag::kActivations, dispatch);
  }
  const int64_t sent = counts.Count(parallel.etp_ep->rank(), {0, experts});
  dispatch.exchange.emplace(context, counts, counted);
  dispatch.expert_rows = dispatch.exchange->expert_rows();
  const Tensor rows =
      SortTokens(context, x, kept, {0, experts}, sent, padded, MemoryTag::kWorkspace, dispatch);
  return dispatch.exchange->Send(context, rows, MemoryTag::kActivations);
}

Tensor DispatchTokensBackward(const LayerContext& context, const MoeDispatch& dispatch,
                              const Tensor& drows) {
  const Tensor own =
      dispatch.exchange ? dispatch.exchange->Return(context, drows, MemoryTag::kWorkspace) : drows;
  Tensor dx = context.New({dispatch.row_of.dim(0), own.dim(1)}, MemoryTag::kWorkspace);
  Unpermute(own, dispatch.row_of, /*weights=*/{}, dx);
  return ScatterTokens(context, dx, MemoryTag::kWorkspace);
}

void ReturnResults(const LayerContext& context, const Tensor& rows, MoeDispatch& dispatch) {
  dispatch.results =
      dispatch.exchange ? dispatch.exchange->Return(context, rows, MemoryTag::kActivations) : rows;
}

Tensor CombineTokens(const LayerContext& context, const MoeDispatch& dispatch,
                     const Tensor& weights) {
  const Tensor& results = dispatch.results;
  Tensor y = context.New({dispatch.row_of.dim(0), results.dim(1)}, TagOfAll(context));
  Unpermute(results, dispatch.row_of, GatherTokens(context, weights), y);
  return ScatterTokens(context, y, MemoryTag::kActivations);
}

Tensor CombineTokensBackward(const LayerContext& context, const MoeDispatch& dispatch,
                             const Tensor& weights, const Tensor& dy, Tensor& dweights) {
  const Tensor all_weights = GatherTokens(context, weights);
  Tensor dall = context.NewF32(all_weights.shape(), MemoryTag::kWorkspace);
  Tensor drows = context.New(dispatch.results.shape(), MemoryTag::kWorkspace);
  UnpermuteBackward(GatherTokens(context, dy), dispatch.results, dispatch.row_of,
                    dispatch.choice_of, all_weights, drows, dall);
  dweights = ScatterTokens(context, dall, MemoryTag::kWorkspace);
  if (!dispatch.exchange) return drows;
  return dispatch.exchange->Send(context, drows, MemoryTag::kWorkspace);
}

}  // namespace trimtab
