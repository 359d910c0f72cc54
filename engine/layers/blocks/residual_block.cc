#include "engine/layers/blocks/residual_block.h"

#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {

Tensor GradientThrough(const LayerContext& context, const Norm& norm, const Tensor& input,
                       const NormSaved& saved, const Tensor& dresult, bool accumulate) {
  Tensor dinput = context.New(dresult.shape(), MemoryTag::kWorkspace);
  Fill(dinput, 0.0f);
  norm.Backward(context, input, saved, dresult, dinput, accumulate);
  return dinput;
}

}  // namespace trimtab
