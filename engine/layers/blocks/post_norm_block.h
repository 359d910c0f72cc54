// The first Transformer's topology, whose norms stand in the stream itself:
//
//   x = n(x + attention(x)); x = m(x + mlp(x))
#pragma once

#include "engine/layers/blocks/residual_block.h"

namespace trimtab {

struct PostNormBlockSaved {
  LayerMixer::Saved mixer;
  ResultNormSaved middle;  // of the stream after attention
  LayerMlp::Saved mlp;
  ResultNormSaved end;  // of the stream after the MLP

  bool defined() const { return mixer.defined(); }
};

class PostNormBlock {
 public:
  using Saved = PostNormBlockSaved;

  PostNormBlock(ParameterStore& store, const LayerContext& context, const ModuleName& name,
                const LayerSpec& spec);

  Tensor Forward(const LayerContext& context, const Tensor& x, PostNormBlockSaved& saved) const;
  void Backward(const LayerContext& context, const Tensor& x, PostNormBlockSaved& saved, Tensor& dx,
                bool accumulate) const;
  const LayerMlp& mlp() const { return mlp_; }

 private:
  LayerMixer mixer_;
  Norm attention_norm_;
  Norm mlp_norm_;
  LayerMlp mlp_;
};

static_assert(ResidualBlock<PostNormBlock>);

}  // namespace trimtab
