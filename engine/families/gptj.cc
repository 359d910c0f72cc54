#include "engine/base/error.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

using enum TensorForm;

constexpr TensorRow kGptJTensors[] = {
    {"embedding.word_embeddings", {"transformer.wte"}},
    {"decoder.layers.*.input_layernorm", {"transformer.h.*.ln_1"}},
    {"decoder.layers.*.self_attention.linear_qkv",
     {"transformer.h.*.attn.q_proj", "transformer.h.*.attn.k_proj", "transformer.h.*.attn.v_proj"},
     kStacked},
    {"decoder.layers.*.self_attention.linear_proj", {"transformer.h.*.attn.out_proj"}},
    {"decoder.layers.*.mlp.linear_fc1", {"transformer.h.*.mlp.fc_in"}},
    {"decoder.layers.*.mlp.linear_fc2", {"transformer.h.*.mlp.fc_out"}},
    {"decoder.final_layernorm", {"transformer.ln_f"}},
    {"output_layer", {"lm_head"}},
};

constexpr PresetRow kGptJPresets[] = {{"gpt-j-6b", 28, 4096, 16, 16, 16384, 50400, 2048, false}};

ModelConfig GptJDefaults() {
  ModelConfig model;
  model.position = PositionKind::kRope;
  model.bias = false;
  model.mlp_bias = true;
  model.tied_embeddings = false;
  model.output_bias = true;
  model.block = BlockKind::kParallelShared;
  model.rotary_interleaved = true;
  return model;
}

void ReadGptJ(ConfigFile& file, ModelConfig& model) {
  file.Activation("activation_function", "gelu_new", model);
  int64_t rotary_dim = std::min<int64_t>(64, model.head_size());
  file.Nullable("rotary_dim", rotary_dim, model.head_size());
  if (rotary_dim < 2) {  // null is as wide as the model there, which no head is
    throw InputError(fmt::format("{}: expected an integer from 2 to {}",
                                 file.object().Where("rotary_dim"), model.head_size()));
  }
  model.rotary_fraction = static_cast<double>(rotary_dim) / static_cast<double>(model.head_size());
}

// Named as GPT-2, but for its rotary positions.
nlohmann::json WriteGptJ(const ModelConfig& model) {
  nlohmann::json config = Gpt2Family().write(model);
  config["architectures"] = {"GPTJForCausalLM"};
  config["rotary_dim"] = model.rotary_size();
  return config;
}

}  // namespace

Family GptJFamily() {
  const ModelConfig defaults = GptJDefaults();
  return {.types = {"gptj"},
          .defaults = defaults,
          .read = ReadGptJ,
          .write = WriteGptJ,
          .tensors = {.prefix = "transformer.",
                      .rows = {kGptJTensors},
                      .buffers = Gpt2Family().tensors.buffers},
          .presets = {MakePresets("GPT-J", defaults, kGptJPresets)}};
}

}  // namespace trimtab
