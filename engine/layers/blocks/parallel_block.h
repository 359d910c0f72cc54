// Attention and MLP side by side, both from the stream before the layer:
//
//   x += attention(n(x)) + mlp(m(x)), or with one norm for both mlp(n(x))
#pragma once

#include <optional>

#include "engine/layers/blocks/residual_block.h"

namespace trimtab {

struct ParallelBlockSaved {
  NormSaved input_norm;
  LayerMixer::Saved mixer;
  NormSaved mlp_norm;
  LayerMlp::Saved mlp;

  bool defined() const { return mixer.defined(); }
};

class ParallelBlock {
 public:
  using Saved = ParallelBlockSaved;

  ParallelBlock(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                const LayerSpec& spec);

  Tensor Forward(const LayerContext& context, const Tensor& x, ParallelBlockSaved& saved) const;
  void Backward(const LayerContext& context, const Tensor& x, ParallelBlockSaved& saved, Tensor& dx,
                bool accumulate) const;
  const LayerMlp& mlp() const { return mlp_; }

 private:
  /// What attention takes, and the MLP too if they share the norm.
  LinearOperand MixerInput(const LayerContext& context, const Tensor& x,
                           ParallelBlockSaved& saved) const;
  /// What the MLP takes from a norm of its own.
  LinearOperand MlpInput(const LayerContext& context, const Tensor& x,
                         ParallelBlockSaved& saved) const;
  void RecomputeMlp(const LayerContext& context, const Tensor& x, ParallelBlockSaved& saved) const;

  Norm input_norm_;
  LayerMixer mixer_;
  std::optional<Norm> mlp_norm_;  // unless they share one
  LayerMlp mlp_;
};

static_assert(ResidualBlock<ParallelBlock>);

}  // namespace trimtab
