// The activation of an MLP between its two projections, dense or of experts.
#pragma once

#include "engine/config/model/layer_spec.h"
#include "engine/layers/layer_context.h"

namespace trimtab {

/// Whether a fused op makes the activation in fp8.
bool HasFusedFp8(ActivationKind kind);

/// The activation [N, F], from fc1 [N, F], or [N, 2F] if gated.
Tensor MlpActivation(const LayerContext& context, ActivationKind kind, const Tensor& fc1);
/// The gradient of fc1 from that of the activation, in whose memory it may be.
Tensor MlpActivationBackward(const LayerContext& context, ActivationKind kind, const Tensor& fc1,
                             Tensor dactivation);

}  // namespace trimtab
