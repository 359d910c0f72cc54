#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/hugging_face.h"

namespace trimtab {
namespace {

nlohmann::json Gpt2(const ModelConfig& model) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", model.vocab_size},
          {"n_embd", model.hidden_size},
          {"n_layer", model.num_layers},
          {"n_head", model.num_heads},
          {"n_positions", model.max_sequence_length},
          {"n_inner", model.ffn_hidden_size},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", model.norm_epsilon},
          {"tie_word_embeddings", model.tied_embeddings}};
}

nlohmann::json Llama(const ModelConfig& model) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", model.vocab_size},
          {"hidden_size", model.hidden_size},
          {"num_hidden_layers", model.num_layers},
          {"num_attention_heads", model.num_heads},
          {"num_key_value_heads", model.num_kv_heads},
          {"intermediate_size", model.ffn_hidden_size},
          {"max_position_embeddings", model.max_sequence_length},
          {"hidden_act", "silu"},
          {"rms_norm_eps", model.norm_epsilon},
          {"rope_theta", model.rope_theta},
          {"tie_word_embeddings", model.tied_embeddings}};
}

/// Whether the config.json describes the very model, but for its name.
bool Describes(const nlohmann::json& config, const ModelConfig& model) {
  ModelConfig read = ModelConfigFromHuggingFace(config, model.name);
  read.name = model.name;
  read.make_vocab_size_divisible_by = model.make_vocab_size_divisible_by;
  return read == model;
}

}  // namespace

nlohmann::json ToHuggingFace(const ModelConfig& model) {
  for (nlohmann::json config : {Gpt2(model), Llama(model)}) {
    config["initializer_range"] = model.init_std;
    if (Describes(config, model)) return config;
  }
  throw InputError(fmt::format(
      "model '{}': no model type of Hugging Face that is known here describes it", model.name));
}

}  // namespace trimtab
