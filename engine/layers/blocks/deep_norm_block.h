// GLM-130B's form of DeepNorm (arXiv:2203.00555), whose stream is what the norms make of it,
// scaled:
//
//   x = n(x), x = a x + attention(x); x = m(x), x = a x + mlp(x)
#pragma once

#include "engine/layers/blocks/residual_block.h"

namespace trimtab {

struct DeepNormBlockSaved {
  NormSaved input_norm;
  LayerMixer::Saved mixer;
  Tensor middle;  // [rows, C], the residual stream between attention and MLP
  NormSaved mlp_norm;
  LayerMlp::Saved mlp;

  bool defined() const { return mixer.defined(); }
};

class DeepNormBlock {
 public:
  using Saved = DeepNormBlockSaved;

  DeepNormBlock(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                const LayerSpec& spec);

  Tensor Forward(const LayerContext& context, const Tensor& x, DeepNormBlockSaved& saved) const;
  void Backward(const LayerContext& context, const Tensor& x, DeepNormBlockSaved& saved, Tensor& dx,
                bool accumulate) const;
  const LayerMlp& mlp() const { return mlp_; }

 private:
  /// scale * stream + result, in the memory of the result.
  Tensor AddScaled(const LayerContext& context, const Tensor& stream, Tensor result) const;
  /// Turns dx, the gradient of scale * n(x) + f(n(x)), into that of x, given what flows back
  /// through f.
  void NormedGradient(const LayerContext& context, const Norm& norm, const Tensor& x,
                      const NormSaved& saved, const Tensor& dbranch, Tensor& dx,
                      bool accumulate) const;

  float stream_scale_;
  Norm input_norm_;
  LayerMixer mixer_;
  Norm mlp_norm_;
  LayerMlp mlp_;
};

static_assert(ResidualBlock<DeepNormBlock>);

}  // namespace trimtab
