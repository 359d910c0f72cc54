// What all models of a family share, as data: a ModelConfig without the sizes that every preset and
// file of the family adds.
#pragma once

#include "engine/config/model_config.h"

namespace trimtab {

// Named after Hugging Face's model types, where the source of each is modeling_TYPE.py of
// Transformers; fields that differ between models of a family have the default of its class there
// (configuration_TYPE.py, of version 4), 0 where the class makes it of other sizes.

ModelConfig Gpt2Family();
ModelConfig GptJFamily();
ModelConfig GptNeoxFamily();
ModelConfig OptFamily();
ModelConfig BloomFamily();
ModelConfig MptFamily();
/// With one norm for attention and MLP, as Falcon 7B.
ModelConfig FalconFamily();
ModelConfig NemotronFamily();
ModelConfig LlamaFamily();
ModelConfig MistralFamily();
ModelConfig Qwen2Family();
ModelConfig Qwen3Family();
/// embedding_scale, the root of the hidden size, is left to the model.
ModelConfig Gemma2Family();
ModelConfig GlmFamily();
ModelConfig Glm4Family();
/// GLM-130B, by THUDM's SwissArmyTransformer; its mask over the context is not described.
ModelConfig Glm130bFamily();
/// The numbers of experts are left to the model, here and below.
ModelConfig MixtralFamily();
ModelConfig Qwen3MoeFamily();
/// Grok-1, by xai-org's model.py; the scales are left to the model too.
ModelConfig GrokFamily();
ModelConfig Qwen2MoeFamily();
ModelConfig DeepSeekV2Family();
ModelConfig DeepSeekV3Family();
ModelConfig GptOssFamily();
ModelConfig DbrxFamily();

/// Clears fields that say what holds without them, so that equal models compare equal.
void Simplify(ModelConfig& model);

/// What scores of latent attention are multiplied by where yarn has scaled its positions: m^2 /
/// sqrt(D), m = 0.1 * exponent * ln(factor) + 1, for cos and sin are left as they are (DeepSeek's
/// mscale_all_dim).
double LatentAttentionScale(const ModelConfig& model, double exponent);

/// The scaling of rotary positions in Llama 3.1 (factor 8) and 3.2 (factor 32).
RopeScaling Llama3Scaling(double factor);

}  // namespace trimtab
