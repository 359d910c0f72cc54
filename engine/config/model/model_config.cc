#include "engine/config/model/model_config.h"

#include <algorithm>
#include <cmath>

namespace trimtab {
namespace {

/// Parameters of an MLP of width `ffn`.
int64_t MlpSize(const ModelConfig& model, int64_t ffn) {
  const int64_t biases = model.has_mlp_bias() ? model.fc1_size(ffn) + model.hidden_size : 0;
  return model.hidden_size * (model.fc1_size(ffn) + ffn) + biases;
}

/// Parameters of attention.
int64_t AttentionSize(const ModelConfig& model) {
  const int64_t normed_heads =
      model.query_key_norm_whole ? model.num_heads + model.num_kv_heads : 2;
  const int64_t head_norms = model.query_key_norm ? normed_heads * model.head_size() : 0;
  const int64_t latent_norms = model.latent.q_lora_rank + model.latent.kv_lora_rank;
  return model.attention_weights() + (model.has_qkv_bias() ? model.qkv_size() : 0) +
         (model.bias ? model.hidden_size : 0) + head_norms + latent_norms +
         (model.attention_sinks ? model.num_heads : 0);
}

/// Parameters of an MLP with experts, of which `experts` are counted.
int64_t MoeSize(const ModelConfig& model, int64_t experts) {
  const MoeConfig& moe = model.moe;
  const int64_t router =
      moe.num_experts * (model.hidden_size + (moe.router_bias ? 1 : 0) + (moe.expert_bias ? 1 : 0));
  const int64_t shared =
      moe.shared_ffn_hidden_size == 0 ? 0 : MlpSize(model, moe.shared_ffn_hidden_size);
  const int64_t gate = moe.shared_expert_gate ? model.hidden_size : 0;
  return experts * MlpSize(model, moe.ffn_hidden_size) + router + shared + gate;
}

}  // namespace

int64_t ModelConfig::padded_vocab_size(int64_t tp) const {
  return embedding().table.padded_rows(tp);
}

bool ModelConfig::gated() const { return MlpSpec::IsGated(activation); }

int64_t ModelConfig::rotary_size() const {
  if (latent.used()) return latent.qk_rope_head_dim;
  // A product that rounds to just below a whole number is that number.
  return static_cast<int64_t>(
      std::floor(static_cast<double>(head_size()) * rotary_fraction + 1e-9));
}

bool ModelConfig::has_dense_layers() const { return moe.moe_layers(num_layers) < num_layers; }

int64_t ModelConfig::attention_weights() const {
  const int64_t out = attention_size() * hidden_size;
  if (!latent.used()) return hidden_size * qkv_size() + out;
  const int64_t queries = num_heads * head_size();
  const int64_t rank = latent.q_lora_rank;
  const int64_t query = rank > 0 ? rank * (hidden_size + queries) : hidden_size * queries;
  const int64_t down = hidden_size * (latent.kv_lora_rank + latent.qk_rope_head_dim);
  const int64_t up =
      latent.kv_lora_rank * num_heads * (latent.qk_nope_head_dim + latent.v_head_dim);
  return query + down + up + out;
}

int64_t ModelConfig::parameter_count() const {
  const int64_t norm_size = has_norm_bias() ? 2 * hidden_size : hidden_size;
  const int64_t layer_norms = block == BlockKind::kParallelShared ? 1
                              : block == BlockKind::kSandwich     ? 4
                                                                  : 2;
  const int64_t moe_layers = moe.moe_layers(num_layers);
  const int64_t mlps = (num_layers - moe_layers) * MlpSize(*this, ffn_hidden_size) +
                       moe_layers * MoeSize(*this, moe.num_experts);
  const int64_t positions = position == PositionKind::kLearned ? position_rows() * hidden_size : 0;
  const int64_t table = vocab_size * embedding_size();
  const int64_t embeddings = end_weights() + (tied_embeddings ? 0 : table);
  const int64_t ends = ((embedding_norm ? 1 : 0) + (final_norm ? 1 : 0)) * norm_size +
                       (output_bias ? vocab_size : 0);
  return num_layers * (AttentionSize(*this) + layer_norms * norm_size) + mlps + positions +
         embeddings + ends;
}

int64_t ModelConfig::end_weights() const {
  const int64_t projections = narrow_embedding() ? 2 * hidden_size * embedding_size() : 0;
  return vocab_size * embedding_size() + projections;
}

int64_t ModelConfig::mtp_parameter_count() const {
  // Norms of the token and of the stream, their projection back to one, a layer, the last norm.
  const int64_t norm_size = has_norm_bias() ? 2 * hidden_size : hidden_size;
  const int64_t mlp =
      moe.used() ? MoeSize(*this, moe.num_experts) : MlpSize(*this, ffn_hidden_size);
  return 2 * hidden_size * hidden_size + AttentionSize(*this) + mlp + 5 * norm_size;
}

int64_t ModelConfig::active_parameter_count() const {
  return parameter_count() -
         moe.moe_layers(num_layers) * (MoeSize(*this, moe.num_experts) -
                                       MoeSize(*this, std::min(moe.router_topk, moe.num_experts)));
}

int64_t ModelConfig::active_mlp_weights() const {
  const auto weights = [this](int64_t ffn) { return hidden_size * (fc1_size(ffn) + ffn); };
  const int64_t moe_layers = moe.moe_layers(num_layers);
  const int64_t moe_weights = moe.router_topk * weights(moe.ffn_hidden_size) +
                              hidden_size * moe.num_experts + weights(moe.shared_ffn_hidden_size) +
                              (moe.shared_expert_gate ? hidden_size : 0);
  return (num_layers - moe_layers) * weights(ffn_hidden_size) + moe_layers * moe_weights;
}

}  // namespace trimtab
