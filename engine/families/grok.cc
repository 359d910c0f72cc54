// Grok-1, by xai-org's model.py.
#include <cmath>

#include "engine/families/llama_like.h"
#include "engine/families/registry.h"

namespace trimtab {
namespace {

constexpr MoePresetRow kGrokPresets[] = {
    {{"grok-1", 64, 6144, 48, 8, 32768, 131072, 8192, true}, {8, 2, 32768, 0}},
};

// The scales of embedding and logits are left to the model.
ModelConfig GrokDefaults() {
  ModelConfig model = LlamaDefaults();
  model.activation = ActivationKind::kGeGlu;
  model.tied_embeddings = true;
  model.block = BlockKind::kSandwich;
  model.attention_soft_cap = 30;
  model.moe.pre_softmax = true;
  return model;
}

}  // namespace

Family GrokFamily() {
  const ModelConfig defaults = GrokDefaults();
  return {.defaults = defaults,
          .presets = {MakePresets("Grok", defaults, kGrokPresets, [](ModelConfig& model) {
            ScaleEmbeddingByHiddenSize(model);
            model.logit_scale = 1.0 / std::sqrt(3.0);
          })}};
}

}  // namespace trimtab
