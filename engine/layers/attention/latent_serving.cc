// Latent attention over a paged cache, with the projections up absorbed (DeepSeek-V2,
// arXiv:2405.04434, section 2.1.2): with k = U c and v = V c, the score q . k is (U^T q) . c, and
// the sum of weighted values V times that of weighted c. So the cache holds c alone, once for all
// heads, with the part of the key that turns by its position before it: a cached key is
// [turning, c], and its last dims are the value.
#include <vector>

#include "engine/layers/attention/latent_attention.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/moe/permute.h"

namespace trimtab {
namespace {

/// Orders of N x H rows, one per token and head.
struct HeadOrder {
  Tensor by_head;   // [H*N]: the row of token t, head h, among those that go token by token
  Tensor by_token;  // [N*H]: the other way
  Tensor with_key;  // [N*(H+1)]: by_token, and behind the heads of each token a row of zeros

  HeadOrder(const LayerContext& context, int64_t tokens, int64_t heads) {
    std::vector<int32_t> first;
    std::vector<int32_t> second;
    std::vector<int32_t> third;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t t = 0; t < tokens; ++t) first.push_back(static_cast<int32_t>(t * heads + h));
    }
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        second.push_back(static_cast<int32_t>(h * tokens + t));
        third.push_back(second.back());
      }
      third.push_back(-1);
    }
    by_head = Upload(context, first);
    by_token = Upload(context, second);
    with_key = Upload(context, third);
  }

  static Tensor Upload(const LayerContext& context, const std::vector<int32_t>& rows) {
    Tensor tensor =
        Tensor::Empty(context.device, {std::ssize(rows)}, DType::kI32, MemoryTag::kWorkspace);
    CopyFromHost(tensor, std::span<const int32_t>(rows));
    return tensor;
  }
};

Tensor Reordered(const LayerContext& context, const Tensor& rows, const Tensor& order) {
  Tensor result = context.New({order.numel(), rows.dim(1)}, MemoryTag::kWorkspace);
  Permute(rows, order, /*topk=*/1, result);
  return result;
}

/// Columns [from, from + columns).
Tensor Columns(const LayerContext& context, const Tensor& x, int64_t from, int64_t columns) {
  Tensor part = context.New({x.dim(0), columns}, MemoryTag::kWorkspace);
  CopyColumns(x, from, part, 0, columns);
  return part;
}

/// The rows of each head times the head's own matrix.
Tensor MultiplyHeads(const LayerContext& context, const Tensor& rows, const PackedMatrix& heads) {
  TRIMTAB_ASSERT(heads.defined(), "serving latent attention needs packed weights");
  const std::vector<int64_t> each(static_cast<size_t>(heads.matrices),
                                  rows.dim(0) / heads.matrices);
  Tensor y = context.New({rows.dim(0), heads.out}, MemoryTag::kWorkspace);
  GroupedPackedGemm(rows, heads, each, y);
  return y;
}

}  // namespace

Tensor LatentAttention::Serve(const LayerContext& context, const LinearOperand& x,
                              const Tensor& residual) const {
  const int64_t rank = latent_.kv_lora_rank;
  const int64_t fixed = latent_.qk_nope_head_dim;
  const int64_t turns = latent_.qk_rope_head_dim;
  AttentionShape shape = core_.ShapeOf(context);
  const int64_t tokens = shape.tokens();
  const int64_t heads = shape.heads;
  shape.scores.scale = shape.score_scale();  // that of whole keys
  shape.kv_heads = 1;
  shape.head_size = turns + rank;
  shape.value_head_size = rank;
  shape.values_in_keys = true;
  const HeadOrder order(context, tokens, heads);
  const Parameter& up = key_value_up_.weight();

  Tensor qkv = context.New({tokens, shape.qkv_size()}, MemoryTag::kActivations);
  {
    LatentAttentionSaved saved;
    const Tensor query = Queries(context, x, saved).Reshape({tokens * heads, fixed + turns});
    Tensor rows = qkv.Reshape({tokens * (heads + 1), shape.head_size});
    const Tensor absorbed =
        MultiplyHeads(context, Reordered(context, Columns(context, query, 0, fixed), order.by_head),
                      up.packed_absorbed);
    CopyColumns(Reordered(context, absorbed, order.with_key), 0, rows, turns, rank);
    // Token by token already, but for the rows of keys.
    const Tensor turning = Columns(context, query, fixed, turns);
    CopyColumns(Reordered(context, Reordered(context, turning, order.by_head), order.with_key), 0,
                rows, 0, turns);
  }
  {
    Tensor compressed;
    Tensor turning;
    Compress(context, x, compressed, turning);
    const int64_t key = shape.query_size();
    CopyColumns(GatherRows(context, turning), 0, qkv, key, turns);
    CopyColumns(GatherRows(context, key_value_up_.Normed(context, compressed)), 0, qkv, key + turns,
                rank);
  }
  Rope(shape, *core_.spec().rotary, /*inverse=*/false, qkv);
  StoreKv(shape, qkv, *context.cache);
  Tensor sums = context.New({tokens, shape.out_size()}, MemoryTag::kWorkspace);
  PagedAttention(shape, qkv, *context.cache, /*sinks=*/{}, sums);
  const Tensor values = MultiplyHeads(
      context, Reordered(context, sums.Reshape({tokens * heads, rank}), order.by_head), up.packed);
  return core_.Project(
      context, Reordered(context, values, order.by_token).Reshape({tokens, heads * up.packed.out}),
      residual);
}

}  // namespace trimtab
