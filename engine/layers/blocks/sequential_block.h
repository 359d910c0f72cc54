// Attention, then MLP, each added to a stream that passes by their norms:
//
//   x += [n'] attention([n] x); x += [m'] mlp([m] x)
//
// with the norms before the parts (sequential), before and after (sandwich), or after them alone
// (reordered norm).
#pragma once

#include <optional>

#include "engine/layers/blocks/residual_block.h"

namespace trimtab {

struct SequentialBlockSaved {
  NormSaved input_norm;
  LayerMixer::Saved mixer;
  ResultNormSaved post_attention;
  Tensor middle;  // [rows, C], the residual stream between attention and MLP
  NormSaved mlp_norm;
  LayerMlp::Saved mlp;
  ResultNormSaved post_mlp;

  bool defined() const { return mixer.defined(); }
};

class SequentialBlock {
 public:
  using Saved = SequentialBlockSaved;

  SequentialBlock(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                  const LayerSpec& spec);

  Tensor Forward(const LayerContext& context, const Tensor& x, SequentialBlockSaved& saved) const;
  void Backward(const LayerContext& context, const Tensor& x, SequentialBlockSaved& saved,
                Tensor& dx, bool accumulate) const;
  const LayerMlp& mlp() const { return mlp_; }

 private:
  LinearOperand MixerInput(const LayerContext& context, const Tensor& x,
                           SequentialBlockSaved& saved) const;
  LinearOperand MlpInput(const LayerContext& context, SequentialBlockSaved& saved) const;

  std::optional<Norm> input_norm_;
  LayerMixer mixer_;
  std::optional<Norm> post_attention_norm_;
  std::optional<Norm> mlp_norm_;
  std::optional<Norm> post_mlp_norm_;
  LayerMlp mlp_;
};

static_assert(ResidualBlock<SequentialBlock>);

}  // namespace trimtab
