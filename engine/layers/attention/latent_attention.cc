#include "engine/layers/attention/latent_attention.h"

#include <utility>

#include "engine/ops/attention/latent_heads.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {

NormedProjection::NormedProjection(ParameterStore& store, const LayerContext& context,
                                   const ModuleName& norm_name, const ModuleName& up_name,
                                   const AttentionSpec& spec, int64_t rank, int64_t out)
    : norm_(store, norm_name, spec.norm, rank),
      up_(store, context, up_name, rank, {out}, /*bias=*/false, spec.init_std) {}

Tensor NormedProjection::Forward(const LayerContext& context, Tensor compressed,
                                 NormedProjectionSaved& saved) const {
  saved.compressed = std::move(compressed);
  return up_.Forward(context, norm_.Forward(context, saved.compressed, saved.norm),
                     MemoryTag::kWorkspace, saved.up);
}

Tensor NormedProjection::Normed(const LayerContext& context, const Tensor& compressed) const {
  NormSaved saved;
  return norm_.Forward(context, compressed, saved).matrix;
}

Tensor NormedProjection::Backward(const LayerContext& context, const NormedProjectionSaved& saved,
                                  const Tensor& dy, bool accumulate) const {
  const Tensor dnormed = up_.Backward(context, saved.up, dy, accumulate);
  Tensor dcompressed = context.New(dnormed.shape(), MemoryTag::kWorkspace);
  Fill(dcompressed, 0.0f);
  norm_.Backward(context, saved.compressed, saved.norm, dnormed, dcompressed, accumulate);
  return dcompressed;
}

LatentAttention::LatentAttention(ParameterStore& store, const LayerContext& context,
                                 const ModuleName& name, const LatentSpec& spec)
    : latent_(spec.latent),
      key_value_down_(store, name + ".linear_kv_down_proj.weight", "", spec.heads.hidden_size,
                      latent_.kv_lora_rank + latent_.qk_rope_head_dim, spec.heads.init_std),
      key_value_up_(store, context, name + ".kv_layernorm", name + ".linear_kv_up_proj", spec.heads,
                    latent_.kv_lora_rank,
                    spec.heads.heads * (latent_.qk_nope_head_dim + latent_.v_head_dim)),
      core_(store, context, name, spec.heads) {
  ParameterSpec& up = key_value_up_.weight().spec;
  up.multiplied = spec.heads.heads / context.tp();
  up.absorbed_rows = latent_.qk_nope_head_dim;
  const int64_t queries = spec.heads.heads * spec.heads.head_size;
  const int64_t rank = latent_.q_lora_rank;
  if (rank == 0) {
    linear_q_.emplace(store, context, name + ".linear_q_proj", spec.heads.hidden_size,
                      RowBlocks{queries}, /*bias=*/false, spec.heads.init_std);
    return;
  }
  query_down_.emplace(store, name + ".linear_q_down_proj.weight", "", spec.heads.hidden_size, rank,
                      spec.heads.init_std);
  query_up_.emplace(store, context, name + ".q_layernorm", name + ".linear_q_up_proj", spec.heads,
                    rank, queries);
}

Tensor LatentAttention::Queries(const LayerContext& context, const LinearOperand& x,
                                LatentAttentionSaved& saved) const {
  if (linear_q_) return linear_q_->Forward(context, x, MemoryTag::kWorkspace, saved.linear_q);
  return query_up_->Forward(
      context,
      query_down_->Forward(context, x.matrix, MemoryTag::kActivations, context.types.activations),
      saved.query);
}

void LatentAttention::Compress(const LayerContext& context, const LinearOperand& x,
                               Tensor& compressed, Tensor& turning) const {
  const int64_t rank = latent_.kv_lora_rank;
  const int64_t rotary = latent_.qk_rope_head_dim;
  const int64_t rows = x.matrix.dim(0);
  compressed = context.New({rows, rank}, MemoryTag::kActivations);
  turning = context.New({rows, rotary}, MemoryTag::kWorkspace);
  const Tensor both =
      key_value_down_.Forward(context, x.matrix, MemoryTag::kWorkspace, context.types.activations);
  CopyColumns(both, 0, compressed, 0, rank);
  CopyColumns(both, rank, turning, 0, rotary);
}

void LatentAttention::MakeHeads(const LayerContext& context, const LinearOperand& x,
                                LatentAttentionSaved& saved) const {
  const AttentionShape shape = core_.ShapeOf(context);
  const Tensor query = Queries(context, x, saved);
  Tensor compressed;
  Tensor turning;
  Compress(context, x, compressed, turning);
  const Tensor key_value = key_value_up_.Forward(context, std::move(compressed), saved.key_value);
  saved.core.qkv = context.New({shape.tokens(), shape.qkv_size()}, MemoryTag::kActivations);
  JoinHeads(shape, *core_.spec().rotary, query, key_value, GatherRows(context, turning),
            saved.core.qkv);
}

Tensor LatentAttention::Forward(const LayerContext& context, const LinearOperand& x,
                                LatentAttentionSaved& saved, const Tensor& residual) const {
  if (context.paged != nullptr) return Serve(context, x, residual);
  saved.input = x.matrix;
  MakeHeads(context, x, saved);
  return core_.Forward(context, saved.core, residual);
}

void LatentAttention::Recompute(const LayerContext& context, const LinearOperand& x,
                                LatentAttentionSaved& saved) const {
  saved.input = x.matrix;
  if (linear_q_) linear_q_->Keep(context, x, saved.linear_q);
}

Tensor LatentAttention::QueriesBackward(const LayerContext& context,
                                        const LatentAttentionSaved& saved, const Tensor& dquery,
                                        bool accumulate) const {
  if (linear_q_) return linear_q_->Backward(context, saved.linear_q, dquery, accumulate);
  const Tensor dcompressed = query_up_->Backward(context, saved.query, dquery, accumulate);
  Tensor dx = context.New(saved.input.shape(), MemoryTag::kWorkspace);
  Fill(dx, 0.0f);
  query_down_->Backward(context, saved.input, dcompressed, dx, accumulate);
  return dx;
}

Tensor LatentAttention::Backward(const LayerContext& context, LatentAttentionSaved& saved,
                                 LinearOperand dy, bool accumulate) const {
  const AttentionShape shape = core_.ShapeOf(context);
  const int64_t rank = latent_.kv_lora_rank;
  const int64_t rotary = latent_.qk_rope_head_dim;
  Tensor dx;
  Tensor dkey_value;
  Tensor dturning;
  {
    Tensor dquery;
    {
      const Tensor dqkv = core_.Backward(context, saved.core, std::move(dy), accumulate);
      dquery = context.New({shape.tokens(), shape.query_size()}, MemoryTag::kWorkspace);
      dkey_value = context.New(JoinedKeyValueShape(shape, rotary), MemoryTag::kWorkspace);
      dturning = context.New({shape.tokens(), rotary}, MemoryTag::kWorkspace);
      JoinHeadsBackward(shape, *core_.spec().rotary, dqkv, dquery, dkey_value, dturning);
    }
    dx = QueriesBackward(context, saved, dquery, accumulate);
  }
  Tensor both = context.New({dx.dim(0), rank + rotary}, MemoryTag::kWorkspace);
  CopyColumns(key_value_up_.Backward(context, saved.key_value, dkey_value, accumulate), 0, both, 0,
              rank);
  // Each rank knows what its own heads say of the part that all share.
  CopyColumns(ReduceRows(context, std::move(dturning), MemoryTag::kWorkspace), 0, both, rank,
              rotary);
  key_value_down_.Backward(context, saved.input, both, dx, accumulate);
  return dx;
}

}  // namespace trimtab
