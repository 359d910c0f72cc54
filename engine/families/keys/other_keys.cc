#include "engine/families/keys/other_keys.h"

#include <algorithm>

namespace trimtab {
namespace {

constexpr std::string_view kHarmless[] = {
    // The file, where it is from and what it was made with.
    "architectures", "model_type", "auto_map", "custom_pipelines", "finetuning_task", "finetuned",
    "license", "language", "model_name", "name", "name_or_path", "prefix", "quantization_config",
    "task_specific_params", "tokenizer_class", "tokenizer_name", "transformers.js_config",
    "transformers_version", "transformers_weights", "unsloth_fixed", "unsloth_version",
    "unsloth_training_args", "unsloth_optimized", "wandb", "dataset", "axolotl_config", "verbose",
    // Types and memory.
    "torch_dtype", "dtype", "use_bfloat16", "fp16", "bf16", "fp32", "float32_logits",
    "attention_softmax_in_fp32", "reorder_and_upcast_attn", "gradient_checkpointing", "init_device",
    "init_config", "low_cpu_mem_usage", "fused_bias_fc", "use_flash_attn", "use_flash_attention",
    "flash_attn", "attn_implementation", "experts_implementation", "attn_impl",
    "masked_softmax_fusion", "bias_dropout_fusion", "slow_but_exact", "pretraining_tp",
    "tensor_parallel_degree", "ep_size", "chunk_size_feed_forward", "torchscript", "tf_legacy_loss",
    "use_cache", "cache_implementation", "fused_mlp", "fused_dropout_add_ln", "residual_in_fp32",
    "skip_bias_add", "skip_bias_add_qkv", "scale_attention_softmax_in_fp32",
    // Outputs and generation.
    "output_attentions", "output_hidden_states", "output_router_logits", "output_scores",
    "output_past", "return_dict", "use_return_dict", "return_dict_in_generate", "max_length",
    "min_length", "max_new_tokens", "min_new_tokens", "do_sample", "early_stopping", "num_beams",
    "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "min_p", "typical_p",
    "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "bad_words_ids", "num_return_sequences", "remove_invalid_values", "suppress_tokens",
    "begin_suppress_tokens", "forced_bos_token_id", "exponential_decay_length_penalty", "eos_token",
    "bos_token", "pad_token", "stop_words", "stop_words_ids", "chat_template", "model_max_length",
    "seq_len", "max_sequence_length", "generation_config",
    // Heads of other tasks.
    "id2label", "label2id", "num_labels", "problem_type", "classifier_dropout",
    "predict_special_tokens", "n_special",
    // Noise and initial weights, of which training here has its own.
    "layerdrop", "dropout", "embedding_dropout", "router_jitter_noise", "moe_jitter_eps",
    "initializer_factor", "initializer_range", "init_std", "rescale_prenorm_residual", "scale_init",
    "embedding_init_std",
    // Second names of lengths, lengths of earlier training, widths that follow from others.
    "n_ctx", "n_positions", "max_seq_len", "seq_length", "max_position_embeddings",
    "initial_context_length", "original_max_position_embeddings", "max_window_layers",
    "offset_alibi", "learned_pos_emb", "use_attention_mask", "is_decoder", "type_vocab_size",
    "ff_factor", "num_ctx", "sliding_window_size"};

bool HasAny(std::string_view key, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [key](std::string_view end) { return key.ends_with(end); });
}

/// What the engine does under a key, whatever the type of the model.
struct EngineKey {
  std::string_view key;
  nlohmann::json (*value)(const ModelConfig& model);
};

template <auto kValue>
nlohmann::json Only(const ModelConfig&) {
  return kValue;
}

constexpr EngineKey kEngineKeys[] = {
    {"attention_bias", [](const ModelConfig& m) -> nlohmann::json { return m.has_qkv_bias(); }},
    {"qkv_bias", [](const ModelConfig& m) -> nlohmann::json { return m.has_qkv_bias(); }},
    {"attention_in_bias", [](const ModelConfig& m) -> nlohmann::json { return m.has_qkv_bias(); }},
    {"attention_out_bias", [](const ModelConfig& m) -> nlohmann::json { return m.bias; }},
    {"o_bias", [](const ModelConfig& m) -> nlohmann::json { return m.bias; }},
    {"mlp_bias", [](const ModelConfig& m) -> nlohmann::json { return m.has_mlp_bias(); }},
    {"lm_head_bias", [](const ModelConfig& m) -> nlohmann::json { return m.output_bias; }},
    {"qk_head_dim", [](const ModelConfig& m) -> nlohmann::json { return m.head_size(); }},
    {"use_qk_norm", [](const ModelConfig& m) -> nlohmann::json { return m.query_key_norm; }},
    {"qk_layernorm", [](const ModelConfig& m) -> nlohmann::json { return m.query_key_norm; }},
    {"rope_interleaved",
     [](const ModelConfig& m) -> nlohmann::json { return m.rotary_interleaved; }},
    {"rope_interleave",
     [](const ModelConfig& m) -> nlohmann::json { return m.rotary_interleaved; }},
    {"rotary",
     [](const ModelConfig& m) -> nlohmann::json { return m.position == PositionKind::kRope; }},
    {"use_rotary_embeddings",
     [](const ModelConfig& m) -> nlohmann::json { return m.position == PositionKind::kRope; }},
    {"alibi",
     [](const ModelConfig& m) -> nlohmann::json { return m.position == PositionKind::kAlibi; }},
    {"use_sliding_window",
     [](const ModelConfig& m) -> nlohmann::json { return m.sliding_window > 0; }},
    {"sliding_window",
     [](const ModelConfig& m) -> nlohmann::json {
       return m.sliding_window > 0 ? nlohmann::json(m.sliding_window) : nlohmann::json(nullptr);
     }},
    {"num_nextn_predict_layers",
     [](const ModelConfig& m) -> nlohmann::json { return m.mtp_modules; }},
    {"is_encoder_decoder", Only<false>},
    {"add_cross_attention", Only<false>},
    {"tie_encoder_decoder", Only<false>},
    {"apply_residual_connection_post_layernorm", Only<false>},
    {"scale_attn_weights", Only<true>},
    {"scale_attn_by_inverse_layer_idx", Only<false>},
    {"scale_embeddings", Only<false>},
    {"learned_embeddings", Only<true>},
    {"output_projection", Only<true>},
    {"attn_uses_sequence_id", Only<false>},
    {"use_bidirectional_attention", Only<false>},
    {"bidirectional", Only<false>},
    {"is_causal", Only<true>},
    {"use_mrope", Only<false>},
    {"mrope_interleaved", Only<false>},
    {"apply_yarn_scaling", Only<true>},
    {"use_dynamic_ntk", Only<false>},
    {"use_logn_attn", Only<false>},
    {"extrapolation_factor", Only<1>},
    {"embedding_fraction", Only<1>},
    {"embedding_multiplier", Only<1>},
    {"residual_multiplier", Only<1>},
    {"logits_scaling", Only<1>},
    {"swiglu_limit", Only<7>},
    {"swiglu_alpha", [](const ModelConfig&) -> nlohmann::json { return 1.702; }},
    {"ffn_act_fn",
     [](const ModelConfig&) -> nlohmann::json {
       return {{"name", "silu"}};
     }},
    {"pruned_heads", [](const ModelConfig&) -> nlohmann::json { return nlohmann::json::object(); }},
    {"per_layer_config",
     [](const ModelConfig&) -> nlohmann::json { return nlohmann::json::object(); }},
    {"no_rope_layers",
     [](const ModelConfig&) -> nlohmann::json { return nlohmann::json::array(); }},
};

}  // namespace

bool IsHarmlessKey(std::string_view key) {
  // A leading underscore marks what Transformers keeps for itself.
  return key.starts_with("_") || key.starts_with("summary_") ||
         HasAny(key, {"_token_id", "_token_ids", "_dropout", "_pdrop", "_dropout_prob",
                      "_dropout_p", "_dropout_rate"}) ||
         std::ranges::find(kHarmless, key) != std::end(kHarmless);
}

std::optional<nlohmann::json> EngineValue(std::string_view key, const ModelConfig& model) {
  for (const EngineKey& row : kEngineKeys) {
    if (row.key == key) return row.value(model);
  }
  return std::nullopt;
}

}  // namespace trimtab
