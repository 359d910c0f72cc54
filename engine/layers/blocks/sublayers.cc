#include "engine/layers/blocks/sublayers.h"

namespace trimtab {

void DropMixerInput(const LayerContext& context, NormSaved& norm, LayerMixer::Saved& saved) {
  if (!context.Recomputes(RecomputeModule::kLayerNorm)) return;
  norm = {};
  saved.DropInput();
}

void DropMlp(const LayerContext& context, NormSaved& norm, LayerMlp::Saved& saved) {
  const bool all = context.Recomputes(RecomputeModule::kMlp);
  if (!all && !context.Recomputes(RecomputeModule::kLayerNorm)) return;
  norm = {};
  if (all) {
    saved = {};
  } else {
    saved.DropInput();
  }
}

}  // namespace trimtab
