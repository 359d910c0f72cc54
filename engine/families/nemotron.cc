#include "engine/families/llama_like.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

constexpr TensorRow kNemotronMlp[] = {
    {"decoder.layers.*.mlp.linear_fc1", {"model.layers.*.mlp.up_proj"}},
};

constexpr PresetRow kNemotronPresets[] = {
    {"minitron-4b", 32, 3072, 24, 8, 9216, 256000, 4096, false, 1e-5, 10000.0, 128},
    {"nemotron-3-8b", 32, 4096, 32, 32, 16384, 256000, 4096, false},
    {"nemotron-3-22b", 40, 6144, 48, 48, 24576, 256000, 4096, false},
    {"nemotron-4-15b", 32, 6144, 48, 8, 24576, 256000, 4096, false},
    {"nemotron-4-340b", 96, 18432, 96, 8, 73728, 256000, 4096, false},
};

ModelConfig NemotronDefaults() {
  ModelConfig model;
  model.activation = ActivationKind::kSquaredRelu;
  model.position = PositionKind::kRope;
  model.bias = false;
  model.tied_embeddings = false;
  model.norm_weight_plus_one = true;
  model.rotary_fraction = 0.5;
  model.ffn_hidden_size = 24576;
  model.max_sequence_length = 4096;
  return model;
}

void ReadNemotron(ConfigFile& file, ModelConfig& model) {
  model.init_std = 0.0134;  // here and not in the defaults, whose presets have the usual one
  file.object().Number("initializer_range", model.init_std, 0.0, 10.0);
  file.Activation("hidden_act", "relu2", model);
  file.Rope(model);
  file.object().Boolean("attention_bias", model.bias);
  model.mlp_bias = false;
  file.object().Boolean("mlp_bias", *model.mlp_bias);
}

nlohmann::json WriteNemotron(const ModelConfig& model) {
  nlohmann::json config = WriteLlamaLike(model, "NemotronForCausalLM");
  config.erase("rms_norm_eps");
  config["norm_eps"] = model.norm_epsilon;
  config["hidden_act"] = "relu2";
  config["partial_rotary_factor"] = model.rotary_fraction;
  return config;
}

}  // namespace

Family NemotronFamily() {
  const ModelConfig defaults = NemotronDefaults();
  return {.types = {"nemotron"},
          .defaults = defaults,
          .read = ReadNemotron,
          .write = WriteNemotron,
          .tensors = LlamaLikeTensors({kLlamaTensors, kLlamaNorms, kNemotronMlp}),
          .presets = {MakePresets("Nemotron", defaults, kNemotronPresets)}};
}

}  // namespace trimtab
