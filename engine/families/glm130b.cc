// GLM-130B, by THUDM's SwissArmyTransformer; its mask over the context is not described.
#include "engine/families/registry.h"

namespace trimtab {
namespace {

constexpr PresetRow kGlm130bPresets[] = {
    {"glm-130b", 70, 12288, 96, 96, 32768, 150528, 2048, true},
};

ModelConfig Glm130bDefaults() {
  ModelConfig model;
  model.activation = ActivationKind::kGeGluErf;
  model.position = PositionKind::kRope;
  model.block = BlockKind::kDeepNorm;
  return model;
}

}  // namespace

Family Glm130bFamily() {
  const ModelConfig defaults = Glm130bDefaults();
  return {.defaults = defaults, .presets = {MakePresets("GLM", defaults, kGlm130bPresets)}};
}

}  // namespace trimtab
