#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

// Otherwise named as BLOOM. Those with two norms of the same input are of the new architecture.
constexpr TensorRow kFalconNorms[] = {
    {"decoder.layers.*.input_layernorm", {"transformer.h.*.ln_attn"}, kSame, BlockKind::kParallel},
    {"decoder.layers.*.pre_mlp_layernorm", {"transformer.h.*.ln_mlp"}, kSame, BlockKind::kParallel},
};
constexpr std::string_view kFalconBuffers[] = {
    "transformer.h.*.self_attention.rotary_emb.inv_freq",
    "transformer.h.*.self_attention.maybe_rotary.inv_freq"};

constexpr PresetRow kFalcon7bPresets[] = {{"falcon-7b", 32, 4544, 71, 1, 18176, 65024, 2048, true}};
constexpr PresetRow kFalconPresets[] = {
    {"falcon-40b", 60, 8192, 128, 8, 32768, 65024, 2048, true},
    {"falcon-180b", 80, 14848, 232, 8, 59392, 65024, 2048, true},
};

// With one norm for attention and MLP, as Falcon 7B.
ModelConfig FalconDefaults() {
  ModelConfig model;
  model.activation = ActivationKind::kGeluErf;
  model.position = PositionKind::kRope;
  model.bias = false;
  model.block = BlockKind::kParallelShared;
  return model;
}

void ReadFalcon(ConfigFile& file, ModelConfig& model) {
  StrictObject& object = file.object();
  file.Activation("activation", "gelu", model);
  file.Rope(model);
  object.Boolean("bias", model.bias);
  // RefinedWeb, the first name of the 40B model, stands for the new architecture itself.
  bool new_architecture = file.type() == "RefinedWeb";
  object.Boolean("new_decoder_architecture", new_architecture);
  bool multi_query = true;
  object.Boolean("multi_query", multi_query);
  bool parallel = true;
  object.Boolean("parallel_attn", parallel);
  const int64_t listed_kv_heads = model.num_kv_heads;
  int64_t norms = new_architecture ? 2 : 1;
  if (new_architecture) {
    object.Integer("num_ln_in_parallel_attn", norms, 1, 2);
    parallel = true;
  } else {
    file.RequireNeutral("num_ln_in_parallel_attn", 1, "a second norm in the old architecture");
  }
  // The 7B file lists 71 key/value heads, and has one.
  model.num_kv_heads = new_architecture ? listed_kv_heads : multi_query ? 1 : listed_kv_heads;
  model.block = !parallel    ? BlockKind::kSequential
                : norms == 2 ? BlockKind::kParallel
                             : BlockKind::kParallelShared;
}

nlohmann::json WriteFalcon(const ModelConfig& model) {
  const bool multi_query = model.num_kv_heads == 1;
  nlohmann::json config = {{"architectures", {"FalconForCausalLM"}},
                           {"hidden_size", model.hidden_size},
                           {"num_hidden_layers", model.num_layers},
                           {"num_attention_heads", model.num_heads},
                           {"num_kv_heads", model.num_kv_heads},
                           {"max_position_embeddings", model.max_sequence_length},
                           {"ffn_hidden_size", model.ffn_hidden_size},
                           {"activation", "gelu"},
                           {"layer_norm_epsilon", model.norm_epsilon},
                           {"rope_theta", model.rope_theta},
                           {"bias", model.bias},
                           {"alibi", false},
                           {"multi_query", multi_query},
                           {"new_decoder_architecture", false},
                           {"parallel_attn", model.block != BlockKind::kSequential}};
  if (model.block == BlockKind::kParallel ||
      (model.block == BlockKind::kParallelShared && !multi_query)) {
    config["new_decoder_architecture"] = true;
    config["num_ln_in_parallel_attn"] = model.block == BlockKind::kParallel ? 2 : 1;
  }
  return config;
}

}  // namespace

Family FalconFamily() {
  const ModelConfig defaults = FalconDefaults();
  TensorNames tensors = BloomFamily().tensors;
  tensors.rows.insert(tensors.rows.begin(), kFalconNorms);
  tensors.buffers = kFalconBuffers;
  return {.types = {"falcon", "RefinedWeb", "RefinedWebModel"},
          .defaults = defaults,
          .read = ReadFalcon,
          .write = WriteFalcon,
          .refused = {{"alibi", false, "ALiBi, which Falcon scales in its own way,"}},
          .tensors = tensors,
          .presets = {MakePresets("Falcon", defaults, kFalcon7bPresets),
                      MakePresets("Falcon", defaults, kFalconPresets,
                                  [](ModelConfig& model) { model.block = BlockKind::kParallel; })}};
}

}  // namespace trimtab
