// What all models of a family share, as data: a ModelConfig without sizes. Presets and files of the
// family add those.
#pragma once

#include "engine/config/model_config.h"

namespace trimtab {

// Named after Hugging Face's model types, where the source of each is modeling_TYPE.py of
// Transformers; fields that differ between models of a family have the default of its class there.

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

/// Clears fields that say what holds without them, so that equal models compare equal.
void Simplify(ModelConfig& model);

/// The scaling of rotary positions in Llama 3.1 (factor 8) and 3.2 (factor 32).
RopeScaling Llama3Scaling(double factor);

}  // namespace trimtab
