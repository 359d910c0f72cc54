#include "engine/layers/mlp.h"

#include <cmath>
#include <utility>

#include "engine/ops/activation.h"

namespace trimtab {
namespace {

bool IsSwiGlu(const ModelConfig& model) { return model.activation == ActivationKind::kSwiGlu; }

std::vector<int64_t> Fc1Blocks(const ModelConfig& model) {
  return std::vector<int64_t>(IsSwiGlu(model) ? 2 : 1, model.ffn_hidden_size);
}

}  // namespace

Mlp::Mlp(ParameterStore& store, const LayerContext& context, const std::string& name)
    : linear_fc1_(store, context, name + ".linear_fc1", context.model.hidden_size,
                  Fc1Blocks(context.model), context.model.bias),
      linear_fc2_(store, context, name + ".linear_fc2", context.model.ffn_hidden_size,
                  context.model.hidden_size, context.model.bias,
                  context.model.init_std /
                      std::sqrt(2.0 * static_cast<double>(context.model.num_layers))) {}

Tensor Mlp::Forward(const LayerContext& context, const Tensor& x, MlpSaved& saved) const {
  saved.fc1 = linear_fc1_.Forward(context, x, MemoryTag::kActivations, saved.linear_fc1);
  Tensor activation = context.New({context.tokens(), context.model.ffn_hidden_size / context.tp()},
                                  MemoryTag::kActivations);
  if (IsSwiGlu(context.model)) {
    SwiGluForward(saved.fc1, activation);
  } else {
    GeluForward(saved.fc1, activation);
  }
  return linear_fc2_.Forward(context, activation, MemoryTag::kActivations, saved.linear_fc2);
}

Tensor Mlp::Backward(const LayerContext& context, const MlpSaved& saved, const Tensor& dy,
                     bool accumulate) const {
  Tensor dfc1 = linear_fc2_.Backward(context, saved.linear_fc2, dy, accumulate);
  if (IsSwiGlu(context.model)) {
    Tensor dgate_up = context.New(saved.fc1.shape(), MemoryTag::kWorkspace);
    SwiGluBackward(saved.fc1, dfc1, dgate_up);
    dfc1 = std::move(dgate_up);
  } else {
    GeluBackward(saved.fc1, dfc1, dfc1);
  }
  return linear_fc1_.Backward(context, saved.linear_fc1, dfc1, accumulate);
}

}  // namespace trimtab
