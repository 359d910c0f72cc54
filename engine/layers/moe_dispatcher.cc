#include "engine/layers/moe_dispatcher.h"

#include <algorithm>
#include <numeric>

#include "engine/ops/permute.h"
#include "engine/ops/router.h"

namespace trimtab {
namespace {

/// Rows that each expert has with pad_to_capacity: as many tokens as this rank can have of those
/// that an expert takes. 0 without.
int64_t PaddedRows(const LayerContext& context) {
  const MoeConfig& moe = context.model.moe;
  if (!moe.pad_to_capacity) return 0;
  const int64_t share = context.positions().sequence;
  return context.micro_batch * std::min(moe.capacity(context.sequence), share);
}

/// The rows of each expert where no token is looked at: exact where choices are made in turn, else
/// as many for each.
std::vector<int64_t> ExpectedRows(const LayerContext& context) {
  const MoeConfig& moe = context.model.moe;
  const Positions positions = context.positions();
  std::vector<int64_t> rows(static_cast<size_t>(moe.num_experts));
  for (int64_t token = 0; token < positions.sequence; ++token) {
    const int64_t place = context.routing.force_balance ? positions.of(token) : token;
    for (int64_t j = 0; j < moe.router_topk; ++j) {
      rows[static_cast<size_t>((place * moe.router_topk + j) % moe.num_experts)] +=
          context.micro_batch;
    }
  }
  const int64_t most = context.micro_batch * moe.capacity(context.sequence);
  for (int64_t& each : rows) each = std::min(each, most);
  return rows;
}

std::vector<int64_t> CountRows(const LayerContext& context, const Tensor& kept) {
  const int64_t experts = context.model.moe.num_experts;
  if (const int64_t padded = PaddedRows(context); padded > 0) {
    return std::vector<int64_t>(static_cast<size_t>(experts), padded);
  }
  Tensor counts = context.NewF32({1, experts}, MemoryTag::kWorkspace);
  CountChoices(kept, counts, /*accumulate=*/false);
  if (context.device.kind() == DeviceKind::kMeta) return ExpectedRows(context);
  std::vector<float> host(static_cast<size_t>(experts));
  CopyToHost(counts, host);
  return {host.begin(), host.end()};
}

}  // namespace

Tensor DispatchTokens(const LayerContext& context, const Tensor& x, const Tensor& kept,
                      MoeDispatch& dispatch) {
  dispatch.expert_rows = CountRows(context, kept);
  const int64_t count =
      std::accumulate(dispatch.expert_rows.begin(), dispatch.expert_rows.end(), int64_t{0});
  const auto ids = [&context](const Shape& shape) {
    return Tensor::Empty(context.device, shape, DType::kI32, MemoryTag::kActivations);
  };
  dispatch.row_of = ids(kept.shape());
  dispatch.choice_of = ids({count});
  SortByExpert(kept, context.model.moe.num_experts, PaddedRows(context), dispatch.row_of,
               dispatch.choice_of);
  Tensor rows = context.New({count, x.dim(1)}, MemoryTag::kActivations);
  Permute(x, dispatch.choice_of, kept.dim(1), rows);
  return rows;
}

Tensor DispatchTokensBackward(const LayerContext& context, const MoeDispatch& dispatch,
                              const Tensor& drows) {
  Tensor dx = context.New({dispatch.row_of.dim(0), drows.dim(1)}, MemoryTag::kWorkspace);
  Unpermute(drows, dispatch.row_of, /*weights=*/{}, dx);
  return dx;
}

Tensor CombineTokens(const LayerContext& context, const MoeDispatch& dispatch, const Tensor& rows,
                     const Tensor& weights, MemoryTag tag) {
  Tensor y = context.New({dispatch.row_of.dim(0), rows.dim(1)}, tag);
  Unpermute(rows, dispatch.row_of, weights, y);
  return y;
}

Tensor CombineTokensBackward(const LayerContext& context, const MoeDispatch& dispatch,
                             const Tensor& rows, const Tensor& weights, const Tensor& dy,
                             Tensor& dweights) {
  Tensor drows = context.New(rows.shape(), MemoryTag::kWorkspace);
  UnpermuteBackward(dy, rows, dispatch.row_of, dispatch.choice_of, weights, drows, dweights);
  return drows;
}

}  // namespace trimtab
