#include "engine/layers/mlp/mlp_activation.h"

#include "engine/ops/activation/activation.h"

namespace trimtab {
namespace {

ActivationFunction FunctionOf(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kGelu:
    case ActivationKind::kGeGlu:
      return ActivationFunction::kGelu;
    case ActivationKind::kGeluErf:
    case ActivationKind::kGeGluErf:
      return ActivationFunction::kGeluErf;
    case ActivationKind::kRelu:
      return ActivationFunction::kRelu;
    case ActivationKind::kSquaredRelu:
      return ActivationFunction::kSquaredRelu;
    case ActivationKind::kSwiGlu:
      return ActivationFunction::kSilu;
    case ActivationKind::kClampedSwiGlu:
      return ActivationFunction::kClampedSwish;
  }
  TRIMTAB_ASSERT(false, "activation kind {}", static_cast<int>(kind));
}

}  // namespace

bool HasFusedFp8(ActivationKind kind) {
  return kind == ActivationKind::kGelu || kind == ActivationKind::kSwiGlu;
}

Tensor MlpActivation(const LayerContext& context, ActivationKind kind, const Tensor& fc1) {
  const bool gated = MlpSpec::IsGated(kind);
  Tensor activation =
      context.New({fc1.dim(0), fc1.dim(1) / (gated ? 2 : 1)}, MemoryTag::kActivations);
  (gated ? GatedActivationForward : ActivationForward)(FunctionOf(kind), fc1, activation);
  return activation;
}

Tensor MlpActivationBackward(const LayerContext& context, ActivationKind kind, const Tensor& fc1,
                             Tensor dactivation) {
  const ActivationFunction function = FunctionOf(kind);
  if (!MlpSpec::IsGated(kind)) {
    ActivationBackward(function, fc1, dactivation, dactivation);
    return dactivation;
  }
  Tensor dgate_up = context.New(fc1.shape(), MemoryTag::kWorkspace);
  GatedActivationBackward(function, fc1, dactivation, dgate_up);
  return dgate_up;
}

}  // namespace trimtab
