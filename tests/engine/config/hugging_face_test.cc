#include "engine/config/hugging_face.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/strict_json.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

const std::string kModels = "testdata/configs/models/";

TEST(HuggingFace, PublishedFilesEqualThePresets) {
  for (const auto& [file, preset] :
       {std::pair{"gpt2.json", "gpt2-124m"}, {"llama3_8b.json", "llama3-8b"}}) {
    ModelConfig model = LoadModelConfig(kModels + file);
    EXPECT_EQ(model.name, kModels + file);
    model.name = preset;
    EXPECT_EQ(model, LoadModelConfig(preset));
  }
}

TEST(HuggingFace, NameInTheFileIsKept) {
  nlohmann::json json = ReadJsonFile(kModels + "gpt2.json");
  json["_name_or_path"] = "openai-community/gpt2";
  EXPECT_EQ(ModelConfigFromHuggingFace(json, "c.json: $").name, "openai-community/gpt2");
}

TEST(HuggingFace, LlamaDefaults) {
  nlohmann::json json = ReadJsonFile(kModels + "llama3_8b.json");
  json.erase("num_key_value_heads");
  json.erase("rope_theta");
  json.erase("rms_norm_eps");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  const ModelConfig model = ModelConfigFromHuggingFace(json, "c.json: $");
  EXPECT_EQ(model.num_kv_heads, 32);
  EXPECT_EQ(model.norm_epsilon, 1e-6);
  EXPECT_EQ(model.rope_theta, 1e6);
}

struct Refused {
  const char* file;
  const char* key;
  nlohmann::json value;
  const char* message;  // after "c.json: $."
};

TEST(HuggingFace, RefusesFeaturesTheEngineDoesNotHave) {
  const Refused cases[] = {
      {"gpt2.json", "model_type", "mixtral", "model_type: expected gpt2 or llama, got \"mixtral\""},
      {"gpt2.json", "n_embd", 0, "n_embd: expected an integer from 1 to 1048576, got 0"},
      {"gpt2.json", "activation_function", "relu",
       "activation_function: expected gelu_new, the tanh approximation of GELU, got \"relu\""},
      {"gpt2.json", "scale_attn_weights", false,
       "scale_attn_weights: unscaled attention is not supported; expected true or no such key, "
       "got false"},
      {"gpt2.json", "add_cross_attention", true,
       "add_cross_attention: cross attention is not supported; expected false or no such key, got "
       "true"},
      {"llama3_8b.json",
       "rope_scaling",
       {{"rope_type", "llama3"}, {"factor", 8.0}},
       "rope_scaling: scaled rotary positions are not supported; expected null, got an object"},
      {"llama3_8b.json",
       "rope_parameters",
       {{"rope_type", "yarn"}},
       "rope_parameters.rope_type: scaling of rotary positions is not supported; expected "
       "\"default\" or no such key, got \"yarn\""},
      {"llama3_8b.json", "attention_bias", true,
       "attention_bias: a bias in attention is not supported; expected false or no such key, got "
       "true"},
      {"llama3_8b.json", "mlp_bias", true,
       "mlp_bias: a bias in the MLP is not supported; expected false or no such key, got true"},
      {"llama3_8b.json", "hidden_act", "gelu",
       "hidden_act: an activation other than SiLU is not supported; expected \"silu\" or no such "
       "key, got \"gelu\""},
      {"llama3_8b.json", "head_dim", 64,
       "head_dim: head_dim 64 x 32 heads must make hidden_size 4096"},
  };
  for (const Refused& refused : cases) {
    nlohmann::json json = ReadJsonFile(kModels + refused.file);
    json[refused.key] = refused.value;
    EXPECT_EQ(ErrorText<InputError>([&json] { ModelConfigFromHuggingFace(json, "c.json: $"); }),
              std::string("c.json: $.") + refused.message);
  }
}

TEST(HuggingFace, MissingModelTypeOrSizeIsNamed) {
  nlohmann::json json = ReadJsonFile(kModels + "gpt2.json");
  json.erase("n_layer");
  EXPECT_EQ(ErrorText<InputError>([&json] { ModelConfigFromHuggingFace(json, "c.json: $"); }),
            "c.json: $.n_layer: required, but missing");
  json.erase("model_type");
  EXPECT_TRUE(IsHuggingFaceConfig(json));
  EXPECT_EQ(ErrorText<InputError>([&json] { ModelConfigFromHuggingFace(json, "c.json: $"); }),
            "c.json: $.model_type: required, but missing");
}

}  // namespace
}  // namespace trimtab
