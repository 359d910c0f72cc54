// The seam to the CUDA backend: a table of kernels that the backend's devices carry.
//
// Each dispatcher (`gemm.cc`, ...) checks shapes, reports the op, takes its scratch, then calls the
// cpu kernel, or the entry here with what it was called with. An entry left null means the op has
// no CUDA kernel: the dispatcher refuses by name.
#pragma once

#include "engine/ops/activation/activation.h"
#include "engine/ops/activation/gate_rows.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/attention_block.h"
#include "engine/ops/attention/attention_sink.h"
#include "engine/ops/attention/latent_heads.h"
#include "engine/ops/attention/paged_attention.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/fp8/fused_fp8.h"
#include "engine/ops/fp8/quantize.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/moe/permute.h"
#include "engine/ops/moe/router.h"
#include "engine/ops/moe/sequence_routing.h"
#include "engine/ops/norm/head_norm.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/norm/whole_norm.h"
#include "engine/ops/optimizer/adamw.h"
#include "engine/ops/optimizer/momentum.h"
#include "engine/ops/optimizer/newton_schulz.h"
#include "engine/ops/optimizer/update_state.h"
#include "engine/ops/packed/packed_gemm.h"
#include "engine/ops/packed/packed_lookup.h"
#include "engine/ops/vocabulary/cross_entropy.h"
#include "engine/ops/vocabulary/embedding.h"

namespace trimtab {

struct CudaOps {
  decltype(&Gemm) gemm = nullptr;
  decltype(&BiasBackward) bias_backward = nullptr;
  decltype(&AttentionForward) attention_forward = nullptr;
  /// As AttentionBackward, with the scratch it asks for.
  void (*attention_backward)(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                             const Tensor& log_sum_exp, const Tensor& dout, Tensor& dqkv,
                             const Tensor& scratch) = nullptr;
  decltype(&AttentionBlockForward) attention_block_forward = nullptr;
  /// As AttentionBlockBackward, with the scratch it asks for.
  void (*attention_block_backward)(const AttentionShape& shape, const RowLayout& keys,
                                   const AttentionBlock& block, const Tensor& qkv, const Tensor& kv,
                                   const Tensor& out, const Tensor& log_sum_exp, const Tensor& dout,
                                   Tensor& dquery, Tensor& dkv, const Tensor& scratch) = nullptr;
  decltype(&AttentionSink) attention_sink = nullptr;
  decltype(&AttentionSinkBackward) attention_sink_backward = nullptr;
  decltype(&JoinHeads) join_heads = nullptr;
  decltype(&JoinHeadsBackward) join_heads_backward = nullptr;
  decltype(&Rope) rope = nullptr;
  decltype(&HeadNormForward) head_norm_forward = nullptr;
  decltype(&HeadNormBackward) head_norm_backward = nullptr;
  decltype(&WholeNormSquares) whole_norm_squares = nullptr;
  decltype(&WholeNormForward) whole_norm_forward = nullptr;
  decltype(&WholeNormSlopes) whole_norm_slopes = nullptr;
  decltype(&WholeNormBackward) whole_norm_backward = nullptr;
  decltype(&LayerNormForward) layer_norm_forward = nullptr;
  decltype(&LayerNormBackward) layer_norm_backward = nullptr;
  decltype(&LayerNormBackward) layer_norm_backward_beside_fp8 = nullptr;  // with copies
  decltype(&RmsNormForward) rms_norm_forward = nullptr;
  decltype(&RmsNormBackward) rms_norm_backward = nullptr;
  decltype(&RmsNormBackward) rms_norm_backward_beside_fp8 = nullptr;
  decltype(&ActivationForward) activation_forward = nullptr;
  decltype(&ActivationBackward) activation_backward = nullptr;
  decltype(&GatedActivationForward) gated_activation_forward = nullptr;
  decltype(&GatedActivationBackward) gated_activation_backward = nullptr;
  decltype(&EmbeddingForward) embedding_forward = nullptr;
  decltype(&EmbeddingBackward) embedding_backward = nullptr;
  decltype(&PositionForward) position_forward = nullptr;
  decltype(&PositionBackward) position_backward = nullptr;
  decltype(&CrossEntropy) cross_entropy = nullptr;
  decltype(&CrossEntropyParts) cross_entropy_parts = nullptr;
  decltype(&CrossEntropyGrad) cross_entropy_grad = nullptr;
  decltype(&Add) add = nullptr;
  decltype(&Copy) copy = nullptr;
  decltype(&CopyColumns) copy_columns = nullptr;
  decltype(&Fill) fill = nullptr;
  decltype(&ApplySoftCap) apply_soft_cap = nullptr;
  decltype(&Clamp) clamp = nullptr;
  decltype(&ClampBackward) clamp_backward = nullptr;
  decltype(&AddBias) add_bias = nullptr;
  decltype(&Sum) sum = nullptr;
  decltype(&SumSquares) sum_squares = nullptr;
  decltype(&Clip) clip = nullptr;
  decltype(&AdamW) adamw = nullptr;
  decltype(&MomentumUpdate) momentum = nullptr;
  decltype(&Normalize) normalize = nullptr;
  decltype(&Quintic) quintic = nullptr;
  decltype(&Amax) amax = nullptr;
  decltype(&Quantize) quantize = nullptr;
  decltype(&UpdateFp8Scales) update_fp8_scales = nullptr;
  decltype(&LayerNormForwardFp8) layer_norm_forward_fp8 = nullptr;
  decltype(&RmsNormForwardFp8) rms_norm_forward_fp8 = nullptr;
  decltype(&GeluForwardFp8) gelu_forward_fp8 = nullptr;
  decltype(&GeluBackwardFp8) gelu_backward_fp8 = nullptr;
  decltype(&SwiGluForwardFp8) swiglu_forward_fp8 = nullptr;
  decltype(&SwiGluBackwardFp8) swiglu_backward_fp8 = nullptr;
  decltype(&RopeBackwardFp8) rope_backward_fp8 = nullptr;
  decltype(&RouterChoose) router_choose = nullptr;
  decltype(&RouterChooseInTurn) router_choose_in_turn = nullptr;
  decltype(&SinkhornChoose) sinkhorn_choose = nullptr;
  decltype(&RouterWeights) router_weights = nullptr;
  decltype(&RouterWeightsBackward) router_weights_backward = nullptr;
  decltype(&RouterLossBackward) router_loss_backward = nullptr;
  decltype(&CountChoices) count_choices = nullptr;
  decltype(&DropTokens) drop_tokens = nullptr;
  decltype(&SortByExpert) sort_by_expert = nullptr;
  decltype(&OrderArrivals) order_arrivals = nullptr;
  decltype(&UpdateExpertBias) update_expert_bias = nullptr;
  decltype(&Permute) permute = nullptr;
  decltype(&Unpermute) unpermute = nullptr;
  decltype(&UnpermuteBackward) unpermute_backward = nullptr;
  decltype(&GateRows) gate_rows = nullptr;
  decltype(&GateRowsBackward) gate_rows_backward = nullptr;
  decltype(&StoreKv) store_kv = nullptr;
  decltype(&PagedAttention) paged_attention = nullptr;
  decltype(&PackedGemm) packed_gemm = nullptr;
  decltype(&PackedLookup) packed_lookup = nullptr;
};

/// Throws EnvironmentError "op has no kernel on device": for dispatchers.
[[noreturn]] void ThrowNoKernel(OpKind op, DeviceKind device);

/// The entry of a cuda device's table. Throws EnvironmentError where it is null.
template <typename Kernel>
Kernel CudaKernel(const Device& device, OpKind op, Kernel CudaOps::*entry) {
  const CudaOps* ops = device.cuda_ops();
  if (ops == nullptr || ops->*entry == nullptr) ThrowNoKernel(op, device.kind());
  return ops->*entry;
}

}  // namespace trimtab
