// From each model's modeling_*.py in Hugging Face's transformers.
#include "engine/checkpoint/hugging_face_families.h"

namespace trimtab {
namespace {

using enum HuggingFaceForm;

constexpr HuggingFaceRow kGpt2[] = {
    {"embedding.word_embeddings", kSame, {"transformer.wte"}},
    {"embedding.position_embeddings", kSame, {"transformer.wpe"}},
    {"decoder.layers.*.input_layernorm", kSame, {"transformer.h.*.ln_1"}},
    {"decoder.layers.*.self_attention.linear_qkv", kTransposed, {"transformer.h.*.attn.c_attn"}},
    {"decoder.layers.*.self_attention.linear_proj", kTransposed, {"transformer.h.*.attn.c_proj"}},
    {"decoder.layers.*.pre_mlp_layernorm", kSame, {"transformer.h.*.ln_2"}},
    {"decoder.layers.*.mlp.linear_fc1", kTransposed, {"transformer.h.*.mlp.c_fc"}},
    {"decoder.layers.*.mlp.linear_fc2", kTransposed, {"transformer.h.*.mlp.c_proj"}},
    {"decoder.final_layernorm", kSame, {"transformer.ln_f"}},
    {"output_layer", kSame, {"lm_head"}},
};
constexpr std::string_view kGpt2Buffers[] = {"transformer.h.*.attn.bias",
                                             "transformer.h.*.attn.masked_bias"};

constexpr HuggingFaceRow kGptJ[] = {
    {"embedding.word_embeddings", kSame, {"transformer.wte"}},
    {"decoder.layers.*.input_layernorm", kSame, {"transformer.h.*.ln_1"}},
    {"decoder.layers.*.self_attention.linear_qkv",
     kStacked,
     {"transformer.h.*.attn.q_proj", "transformer.h.*.attn.k_proj", "transformer.h.*.attn.v_proj"}},
    {"decoder.layers.*.self_attention.linear_proj", kSame, {"transformer.h.*.attn.out_proj"}},
    {"decoder.layers.*.mlp.linear_fc1", kSame, {"transformer.h.*.mlp.fc_in"}},
    {"decoder.layers.*.mlp.linear_fc2", kSame, {"transformer.h.*.mlp.fc_out"}},
    {"decoder.final_layernorm", kSame, {"transformer.ln_f"}},
    {"output_layer", kSame, {"lm_head"}},
};

constexpr HuggingFaceRow kOpt[] = {
    {"embedding.word_embeddings", kSame, {"model.decoder.embed_tokens"}},
    {"embedding.position_embeddings", kSame, {"model.decoder.embed_positions"}},
    {"embedding.project_in", kSame, {"model.decoder.project_in"}},
    {"decoder.layers.*.input_layernorm",
     kSame,
     {"model.decoder.layers.*.self_attn_layer_norm"},
     BlockKind::kSequential},
    {"decoder.layers.*.post_attention_layernorm",
     kSame,
     {"model.decoder.layers.*.self_attn_layer_norm"},
     BlockKind::kPostNorm},
    {"decoder.layers.*.self_attention.linear_qkv",
     kStacked,
     {"model.decoder.layers.*.self_attn.q_proj", "model.decoder.layers.*.self_attn.k_proj",
      "model.decoder.layers.*.self_attn.v_proj"}},
    {"decoder.layers.*.self_attention.linear_proj",
     kSame,
     {"model.decoder.layers.*.self_attn.out_proj"}},
    {"decoder.layers.*.pre_mlp_layernorm",
     kSame,
     {"model.decoder.layers.*.final_layer_norm"},
     BlockKind::kSequential},
    {"decoder.layers.*.post_mlp_layernorm",
     kSame,
     {"model.decoder.layers.*.final_layer_norm"},
     BlockKind::kPostNorm},
    {"decoder.layers.*.mlp.linear_fc1", kSame, {"model.decoder.layers.*.fc1"}},
    {"decoder.layers.*.mlp.linear_fc2", kSame, {"model.decoder.layers.*.fc2"}},
    {"decoder.final_layernorm", kSame, {"model.decoder.final_layer_norm"}},
    {"decoder.project_out", kSame, {"model.decoder.project_out"}},
    {"output_layer", kSame, {"lm_head"}},
};

constexpr HuggingFaceRow kBloom[] = {
    {"embedding.word_embeddings", kSame, {"transformer.word_embeddings"}},
    {"embedding.word_embeddings_layernorm", kSame, {"transformer.word_embeddings_layernorm"}},
    {"decoder.layers.*.input_layernorm", kSame, {"transformer.h.*.input_layernorm"}},
    {"decoder.layers.*.self_attention.linear_qkv",
     kHeadGroups,
     {"transformer.h.*.self_attention.query_key_value"}},
    {"decoder.layers.*.self_attention.linear_proj",
     kSame,
     {"transformer.h.*.self_attention.dense"}},
    {"decoder.layers.*.pre_mlp_layernorm", kSame, {"transformer.h.*.post_attention_layernorm"}},
    {"decoder.layers.*.mlp.linear_fc1", kSame, {"transformer.h.*.mlp.dense_h_to_4h"}},
    {"decoder.layers.*.mlp.linear_fc2", kSame, {"transformer.h.*.mlp.dense_4h_to_h"}},
    {"decoder.final_layernorm", kSame, {"transformer.ln_f"}},
    {"output_layer", kSame, {"lm_head"}},
};
// Otherwise named as BLOOM. Those with two norms of the same input are of the new architecture.
constexpr HuggingFaceRow kFalconNorms[] = {
    {"decoder.layers.*.input_layernorm", kSame, {"transformer.h.*.ln_attn"}, BlockKind::kParallel},
    {"decoder.layers.*.pre_mlp_layernorm", kSame, {"transformer.h.*.ln_mlp"}, BlockKind::kParallel},
};
constexpr std::string_view kFalconBuffers[] = {
    "transformer.h.*.self_attention.rotary_emb.inv_freq",
    "transformer.h.*.self_attention.maybe_rotary.inv_freq"};

constexpr HuggingFaceRow kMpt[] = {
    {"embedding.word_embeddings", kSame, {"transformer.wte"}},
    {"decoder.layers.*.input_layernorm", kSame, {"transformer.blocks.*.norm_1"}},
    {"decoder.layers.*.self_attention.linear_qkv", kSame, {"transformer.blocks.*.attn.Wqkv"}},
    {"decoder.layers.*.self_attention.linear_proj", kSame, {"transformer.blocks.*.attn.out_proj"}},
    {"decoder.layers.*.pre_mlp_layernorm", kSame, {"transformer.blocks.*.norm_2"}},
    {"decoder.layers.*.mlp.linear_fc1", kSame, {"transformer.blocks.*.ffn.up_proj"}},
    {"decoder.layers.*.mlp.linear_fc2", kSame, {"transformer.blocks.*.ffn.down_proj"}},
    {"decoder.final_layernorm", kSame, {"transformer.norm_f"}},
    {"output_layer", kSame, {"lm_head"}},
};

constexpr HuggingFaceRow kGptNeox[] = {
    {"embedding.word_embeddings", kSame, {"gpt_neox.embed_in"}},
    {"decoder.layers.*.input_layernorm", kSame, {"gpt_neox.layers.*.input_layernorm"}},
    {"decoder.layers.*.self_attention.linear_qkv",
     kHeadGroups,
     {"gpt_neox.layers.*.attention.query_key_value"}},
    {"decoder.layers.*.self_attention.linear_proj", kSame, {"gpt_neox.layers.*.attention.dense"}},
    {"decoder.layers.*.pre_mlp_layernorm", kSame, {"gpt_neox.layers.*.post_attention_layernorm"}},
    {"decoder.layers.*.mlp.linear_fc1", kSame, {"gpt_neox.layers.*.mlp.dense_h_to_4h"}},
    {"decoder.layers.*.mlp.linear_fc2", kSame, {"gpt_neox.layers.*.mlp.dense_4h_to_h"}},
    {"decoder.final_layernorm", kSame, {"gpt_neox.final_layer_norm"}},
    {"output_layer", kSame, {"embed_out"}},
};
constexpr std::string_view kGptNeoxBuffers[] = {"gpt_neox.layers.*.attention.bias",
                                                "gpt_neox.layers.*.attention.masked_bias",
                                                "gpt_neox.layers.*.attention.rotary_emb.inv_freq"};

// Llama and what is named after it: all but norms and MLP.
constexpr HuggingFaceRow kLlama[] = {
    {"embedding.word_embeddings", kSame, {"model.embed_tokens"}},
    {"decoder.layers.*.self_attention.linear_qkv",
     kStacked,
     {"model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.k_proj",
      "model.layers.*.self_attn.v_proj"}},
    {"decoder.layers.*.self_attention.q_layernorm", kSame, {"model.layers.*.self_attn.q_norm"}},
    {"decoder.layers.*.self_attention.k_layernorm", kSame, {"model.layers.*.self_attn.k_norm"}},
    {"decoder.layers.*.self_attention.linear_proj", kSame, {"model.layers.*.self_attn.o_proj"}},
    {"decoder.layers.*.mlp.linear_fc2", kSame, {"model.layers.*.mlp.down_proj"}},
    {"decoder.final_layernorm", kSame, {"model.norm"}},
    {"output_layer", kSame, {"lm_head"}},
};
constexpr HuggingFaceRow kLlamaNorms[] = {
    {"decoder.layers.*.input_layernorm", kSame, {"model.layers.*.input_layernorm"}},
    {"decoder.layers.*.pre_mlp_layernorm", kSame, {"model.layers.*.post_attention_layernorm"}},
};
constexpr HuggingFaceRow kGemma2Norms[] = {
    {"decoder.layers.*.input_layernorm", kSame, {"model.layers.*.input_layernorm"}},
    {"decoder.layers.*.post_attention_layernorm",
     kSame,
     {"model.layers.*.post_attention_layernorm"}},
    {"decoder.layers.*.pre_mlp_layernorm", kSame, {"model.layers.*.pre_feedforward_layernorm"}},
    {"decoder.layers.*.post_mlp_layernorm", kSame, {"model.layers.*.post_feedforward_layernorm"}},
};
constexpr HuggingFaceRow kGlm4Norms[] = {
    {"decoder.layers.*.post_attention_layernorm",
     kSame,
     {"model.layers.*.post_self_attn_layernorm"}},
    {"decoder.layers.*.post_mlp_layernorm", kSame, {"model.layers.*.post_mlp_layernorm"}},
};
constexpr HuggingFaceRow kGateAndUp[] = {
    {"decoder.layers.*.mlp.linear_fc1",
     kStacked,
     {"model.layers.*.mlp.gate_proj", "model.layers.*.mlp.up_proj"}},
};
constexpr HuggingFaceRow kGateUp[] = {
    {"decoder.layers.*.mlp.linear_fc1", kSame, {"model.layers.*.mlp.gate_up_proj"}},
};
constexpr HuggingFaceRow kUp[] = {
    {"decoder.layers.*.mlp.linear_fc1", kSame, {"model.layers.*.mlp.up_proj"}},
};
constexpr HuggingFaceRow kMixtralExperts[] = {
    {"decoder.layers.*.mlp.router", kSame, {"model.layers.*.block_sparse_moe.gate"}},
    {"decoder.layers.*.mlp.experts.linear_fc1",
     kExperts,
     {"model.layers.*.block_sparse_moe.experts.*.w1",
      "model.layers.*.block_sparse_moe.experts.*.w3"}},
    {"decoder.layers.*.mlp.experts.linear_fc2",
     kExperts,
     {"model.layers.*.block_sparse_moe.experts.*.w2"}},
};
constexpr HuggingFaceRow kQwenExperts[] = {
    {"decoder.layers.*.mlp.router", kSame, {"model.layers.*.mlp.gate"}},
    {"decoder.layers.*.mlp.experts.linear_fc1",
     kExperts,
     {"model.layers.*.mlp.experts.*.gate_proj", "model.layers.*.mlp.experts.*.up_proj"}},
    {"decoder.layers.*.mlp.experts.linear_fc2",
     kExperts,
     {"model.layers.*.mlp.experts.*.down_proj"}},
};
constexpr HuggingFaceRow kFusedExperts[] = {
    {"decoder.layers.*.mlp.router", kSame, {"model.layers.*.mlp.gate"}},
    {"decoder.layers.*.mlp.experts.linear_fc1.weight",
     kWholeExperts,
     {"model.layers.*.mlp.experts.gate_up_proj"}},
    {"decoder.layers.*.mlp.experts.linear_fc2.weight",
     kWholeExperts,
     {"model.layers.*.mlp.experts.down_proj"}},
};
constexpr HuggingFaceRow kQwen2SharedExpert[] = {
    {"decoder.layers.*.mlp.shared_experts.linear_fc1",
     kStacked,
     {"model.layers.*.mlp.shared_expert.gate_proj", "model.layers.*.mlp.shared_expert.up_proj"}},
    {"decoder.layers.*.mlp.shared_experts.linear_fc2",
     kSame,
     {"model.layers.*.mlp.shared_expert.down_proj"}},
    {"decoder.layers.*.mlp.shared_experts.gate_weight",
     kSame,
     {"model.layers.*.mlp.shared_expert_gate.weight"}},
};
// Latent attention, in the place of Llama's.
constexpr HuggingFaceRow kDeepSeek[] = {
    {"embedding.word_embeddings", kSame, {"model.embed_tokens"}},
    {"decoder.layers.*.self_attention.linear_q_proj", kSame, {"model.layers.*.self_attn.q_proj"}},
    {"decoder.layers.*.self_attention.linear_q_down_proj",
     kSame,
     {"model.layers.*.self_attn.q_a_proj"}},
    {"decoder.layers.*.self_attention.q_layernorm",
     kSame,
     {"model.layers.*.self_attn.q_a_layernorm"}},
    {"decoder.layers.*.self_attention.linear_q_up_proj",
     kSame,
     {"model.layers.*.self_attn.q_b_proj"}},
    {"decoder.layers.*.self_attention.linear_kv_down_proj",
     kSame,
     {"model.layers.*.self_attn.kv_a_proj_with_mqa"}},
    {"decoder.layers.*.self_attention.kv_layernorm",
     kSame,
     {"model.layers.*.self_attn.kv_a_layernorm"}},
    {"decoder.layers.*.self_attention.linear_kv_up_proj",
     kSame,
     {"model.layers.*.self_attn.kv_b_proj"}},
    {"decoder.layers.*.self_attention.linear_proj", kSame, {"model.layers.*.self_attn.o_proj"}},
    {"decoder.layers.*.mlp.linear_fc2", kSame, {"model.layers.*.mlp.down_proj"}},
    {"decoder.layers.*.mlp.shared_experts.linear_fc1",
     kStacked,
     {"model.layers.*.mlp.shared_experts.gate_proj", "model.layers.*.mlp.shared_experts.up_proj"}},
    {"decoder.layers.*.mlp.shared_experts.linear_fc2",
     kSame,
     {"model.layers.*.mlp.shared_experts.down_proj"}},
    {"decoder.layers.*.mlp.router.expert_bias",
     kSame,
     {"model.layers.*.mlp.gate.e_score_correction_bias"}},
    {"decoder.final_layernorm", kSame, {"model.norm"}},
    {"output_layer", kSame, {"lm_head"}},
};
constexpr HuggingFaceRow kGptOss[] = {
    {"decoder.layers.*.self_attention.softmax_offset", kSame, {"model.layers.*.self_attn.sinks"}},
    {"decoder.layers.*.mlp.router", kSame, {"model.layers.*.mlp.router"}},
    {"decoder.layers.*.mlp.experts.linear_fc1.weight",
     kInterleavedExperts,
     {"model.layers.*.mlp.experts.gate_up_proj"}},
    {"decoder.layers.*.mlp.experts.linear_fc1.bias",
     kInterleavedExperts,
     {"model.layers.*.mlp.experts.gate_up_proj_bias"}},
    {"decoder.layers.*.mlp.experts.linear_fc2.weight",
     kTransposedExperts,
     {"model.layers.*.mlp.experts.down_proj"}},
    {"decoder.layers.*.mlp.experts.linear_fc2.bias",
     kTransposedExperts,
     {"model.layers.*.mlp.experts.down_proj_bias"}},
};
constexpr HuggingFaceRow kDbrx[] = {
    {"embedding.word_embeddings", kSame, {"transformer.wte"}},
    {"decoder.layers.*.input_layernorm", kSame, {"transformer.blocks.*.norm_attn_norm.norm_1"}},
    {"decoder.layers.*.self_attention.linear_qkv",
     kSame,
     {"transformer.blocks.*.norm_attn_norm.attn.Wqkv"}},
    {"decoder.layers.*.self_attention.linear_proj",
     kSame,
     {"transformer.blocks.*.norm_attn_norm.attn.out_proj"}},
    {"decoder.layers.*.pre_mlp_layernorm", kSame, {"transformer.blocks.*.norm_attn_norm.norm_2"}},
    {"decoder.layers.*.mlp.router", kSame, {"transformer.blocks.*.ffn.router.layer"}},
    {"decoder.layers.*.mlp.experts.linear_fc1.weight",
     kStackedExperts,
     {"transformer.blocks.*.ffn.experts.mlp.w1", "transformer.blocks.*.ffn.experts.mlp.v1"}},
    {"decoder.layers.*.mlp.experts.linear_fc2.weight",
     kTransposedRowsExperts,
     {"transformer.blocks.*.ffn.experts.mlp.w2"}},
    {"decoder.final_layernorm", kSame, {"transformer.norm_f"}},
    {"output_layer", kSame, {"lm_head"}},
};
constexpr std::string_view kLlamaBuffers[] = {"model.layers.*.self_attn.rotary_emb.inv_freq"};

constexpr HuggingFaceFamily kFamilies[] = {
    {"gpt2", "transformer.", {kGpt2}, kGpt2Buffers},
    {"gptj", "transformer.", {kGptJ}, kGpt2Buffers},
    {"opt", "model.", {kOpt}},
    {"bloom", "transformer.", {kBloom}},
    {"falcon", "transformer.", {kFalconNorms, kBloom}, kFalconBuffers},
    {"RefinedWeb", "transformer.", {kFalconNorms, kBloom}, kFalconBuffers},
    {"RefinedWebModel", "transformer.", {kFalconNorms, kBloom}, kFalconBuffers},
    {"mpt", "transformer.", {kMpt}},
    {"gpt_neox", "gpt_neox.", {kGptNeox}, kGptNeoxBuffers},
    {"llama", "model.", {kLlama, kLlamaNorms, kGateAndUp}, kLlamaBuffers},
    {"mistral", "model.", {kLlama, kLlamaNorms, kGateAndUp}, kLlamaBuffers},
    {"mixtral", "model.", {kLlama, kLlamaNorms, kMixtralExperts}, kLlamaBuffers, kFusedExperts},
    {"qwen2", "model.", {kLlama, kLlamaNorms, kGateAndUp}, kLlamaBuffers},
    {"qwen3", "model.", {kLlama, kLlamaNorms, kGateAndUp}, kLlamaBuffers},
    {"qwen3_moe",
     "model.",
     {kLlama, kLlamaNorms, kGateAndUp, kQwenExperts},
     kLlamaBuffers,
     kFusedExperts},
    {"qwen2_moe",
     "model.",
     {kLlama, kLlamaNorms, kGateAndUp, kQwenExperts, kQwen2SharedExpert},
     kLlamaBuffers,
     kFusedExperts},
    {"deepseek_v2",
     "model.",
     {kDeepSeek, kLlamaNorms, kGateAndUp, kQwenExperts},
     kLlamaBuffers,
     kFusedExperts},
    {"deepseek_v3",
     "model.",
     {kDeepSeek, kLlamaNorms, kGateAndUp, kQwenExperts},
     kLlamaBuffers,
     kFusedExperts},
    {"gpt_oss", "model.", {kLlama, kLlamaNorms, kGptOss}, kLlamaBuffers},
    {"dbrx", "transformer.", {kDbrx}},
    {"nemotron", "model.", {kLlama, kLlamaNorms, kUp}, kLlamaBuffers},
    {"gemma2", "model.", {kLlama, kGemma2Norms, kGateAndUp}, kLlamaBuffers},
    {"glm", "model.", {kLlama, kLlamaNorms, kGateUp}, kLlamaBuffers},
    {"glm4", "model.", {kLlama, kLlamaNorms, kGlm4Norms, kGateUp}, kLlamaBuffers},
};

}  // namespace

std::span<const HuggingFaceFamily> HuggingFaceFamilies() { return kFamilies; }

}  // namespace trimtab
