// From each model's modeling_*.py in Hugging Face's transformers.
#include "engine/checkpoint/hugging_face_families.h"

namespace trimtab {
namespace {

using enum HuggingFaceForm;

constexpr HuggingFaceRow kGpt2Rows[] = {
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

constexpr HuggingFaceRow kLlamaRows[] = {
    {"embedding.word_embeddings", kSame, {"model.embed_tokens"}},
    {"decoder.layers.*.input_layernorm", kSame, {"model.layers.*.input_layernorm"}},
    {"decoder.layers.*.self_attention.linear_qkv",
     kStacked,
     {"model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.k_proj",
      "model.layers.*.self_attn.v_proj"}},
    {"decoder.layers.*.self_attention.linear_proj", kSame, {"model.layers.*.self_attn.o_proj"}},
    {"decoder.layers.*.pre_mlp_layernorm", kSame, {"model.layers.*.post_attention_layernorm"}},
    {"decoder.layers.*.mlp.linear_fc1",
     kStacked,
     {"model.layers.*.mlp.gate_proj", "model.layers.*.mlp.up_proj"}},
    {"decoder.layers.*.mlp.linear_fc2", kSame, {"model.layers.*.mlp.down_proj"}},
    {"decoder.final_layernorm", kSame, {"model.norm"}},
    {"output_layer", kSame, {"lm_head"}},
};
constexpr std::string_view kLlamaBuffers[] = {"model.layers.*.self_attn.rotary_emb.inv_freq"};

constexpr HuggingFaceFamily kFamilies[] = {
    {"gpt2", "transformer.", kGpt2Rows, kGpt2Buffers},
    {"llama", "model.", kLlamaRows, kLlamaBuffers},
};

}  // namespace

std::span<const HuggingFaceFamily> HuggingFaceFamilies() { return kFamilies; }

}  // namespace trimtab
