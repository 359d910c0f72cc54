#include "engine/ops/cuda/attention/attention_cudnn.h"
#include "engine/ops/cuda/attention/attention_kernels.h"
#include "engine/ops/cuda/elementwise/fill.h"

namespace trimtab {
namespace {

bool IsAligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

/// Of values, where it is another.
std::string ValueSizeText(const AttentionShape& shape) {
  return shape.value_size() == shape.head_size ? ""
                                               : fmt::format(", {} of values,", shape.value_size());
}

void ForwardCuda(const AttentionShape& shape, const Tensor& qkv, Tensor& out, Tensor& log_sum_exp) {
  Device& device = out.device();
  const AttentionForwardCall call = {shape, qkv.dtype(), qkv.raw(), out.raw(), log_sum_exp.f32()};
  const bool aligned = IsAligned(call.qkv) && IsAligned(call.out) && IsAligned(call.log_sum_exp);
  RunAttentionForward(device,
                      aligned ? ChooseAttention(device, AttentionPass::kForward, shape, call.dtype)
                              : AttentionImplementation::kSimple,
                      call);
}

void BackwardCuda(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                  const Tensor& log_sum_exp, const Tensor& dout, Tensor& dqkv,
                  const Tensor& scratch) {
  Device& device = dqkv.device();
  const AttentionBackwardCall call = {shape,      qkv.dtype(),       qkv.raw(),
                                      out.raw(),  log_sum_exp.f32(), dout.raw(),
                                      dqkv.raw(), scratch.f32()};
  const bool aligned = IsAligned(call.qkv) && IsAligned(call.out) && IsAligned(call.log_sum_exp) &&
                       IsAligned(call.dout) && IsAligned(call.dqkv) && IsAligned(call.row_sums());
  RunAttentionBackward(device,
                       aligned
                           ? ChooseAttention(device, AttentionPass::kBackward, shape, call.dtype)
                           : AttentionImplementation::kSimple,
                       call);
}

void BlockForwardCuda(const AttentionShape& shape, const RowLayout& keys,
                      const AttentionBlock& block, const Tensor& qkv, const Tensor& kv, Tensor& out,
                      Tensor& log_sum_exp) {
  const AttentionBlockForwardCall call = {.shape = shape,
                                          .keys = keys,
                                          .block = block,
                                          .dtype = qkv.dtype(),
                                          .qkv = qkv.raw(),
                                          .kv = kv.raw(),
                                          .out = out.f32(),
                                          .log_sum_exp = log_sum_exp.f32()};
  const bool aligned = IsAligned(call.qkv) && IsAligned(call.kv) && IsAligned(call.out);
  const LaunchContext context = ContextOf(out.device());
  if (aligned && MmaAttentionTakes(shape, call.dtype)) {
    AttentionBlockForwardMma(context, call);
  } else {
    AttentionBlockForwardSimple(context, call);
  }
}

void BlockBackwardCuda(const AttentionShape& shape, const RowLayout& keys,
                       const AttentionBlock& block, const Tensor& qkv, const Tensor& kv,
                       const Tensor& out, const Tensor& log_sum_exp, const Tensor& dout,
                       Tensor& dquery, Tensor& dkv, const Tensor& scratch) {
  const AttentionBlockBackwardCall call = {.shape = shape,
                                           .keys = keys,
                                           .block = block,
                                           .dtype = qkv.dtype(),
                                           .qkv = qkv.raw(),
                                           .kv = kv.raw(),
                                           .out = out.raw(),
                                           .log_sum_exp = log_sum_exp.f32(),
                                           .dout = dout.raw(),
                                           .dquery = dquery.f32(),
                                           .dkv = dkv.raw(),
                                           .row_sums = scratch.f32()};
  const bool aligned = IsAligned(call.qkv) && IsAligned(call.kv) && IsAligned(call.dout) &&
                       IsAligned(call.dquery) && IsAligned(call.dkv);
  const LaunchContext context = ContextOf(dkv.device());
  if (aligned && MmaAttentionTakes(shape, call.dtype)) {
    AttentionBlockBackwardMma(context, call);
  } else {
    AttentionBlockBackwardSimple(context, call);
  }
}

}  // namespace

std::string_view Name(AttentionImplementation implementation) {
  switch (implementation) {
    case AttentionImplementation::kCudnn:
      return "cudnn";
    case AttentionImplementation::kMma:
      return "mma";
    case AttentionImplementation::kSimple:
      return "simple";
  }
  return "";
}

std::string AttentionRefusal(Device& device, AttentionImplementation implementation,
                             AttentionPass pass, const AttentionShape& shape, DType dtype) {
  switch (implementation) {
    case AttentionImplementation::kCudnn:
      if (shape.rows.positions.defined()) return "its graphs mask no documents";
      if (pass == AttentionPass::kBackward && ContextOf(device).deterministic)
        return "its backward pass adds in an order that differs from run to run";
      return CudnnAttentionRefusal(device, pass, shape, dtype);
    case AttentionImplementation::kMma:
      if (MmaAttentionTakes(shape, dtype)) return "";
      return fmt::format("no tensor-core kernel for head size {}{} in {}{}", shape.head_size,
                         ValueSizeText(shape), Name(dtype),
                         shape.scores.plain() ? "" : ", with capped, windowed or ALiBi scores");
    case AttentionImplementation::kSimple:
      if (LargestHead(shape) <= kMaxSimpleHeadSize) return "";
      return fmt::format("head size {}, at most {}", LargestHead(shape), kMaxSimpleHeadSize);
  }
  return "";
}

AttentionImplementation ChooseAttention(Device& device, AttentionPass pass,
                                        const AttentionShape& shape, DType dtype) {
  for (const auto implementation :
       {AttentionImplementation::kCudnn, AttentionImplementation::kMma}) {
    if (AttentionRefusal(device, implementation, pass, shape, dtype).empty()) return implementation;
  }
  return AttentionImplementation::kSimple;
}

void RunAttentionForward(Device& device, AttentionImplementation implementation,
                         const AttentionForwardCall& call) {
  switch (implementation) {
    case AttentionImplementation::kCudnn:
      return AttentionForwardCudnn(device, call);
    case AttentionImplementation::kMma:
      return AttentionForwardMma(ContextOf(device), call);
    case AttentionImplementation::kSimple:
      return AttentionForwardSimple(ContextOf(device), call);
  }
}

void RunAttentionBackward(Device& device, AttentionImplementation implementation,
                          const AttentionBackwardCall& call) {
  switch (implementation) {
    case AttentionImplementation::kCudnn:
      return AttentionBackwardCudnn(device, call);
    case AttentionImplementation::kMma:
      return AttentionBackwardMma(ContextOf(device), call);
    case AttentionImplementation::kSimple:
      return AttentionBackwardSimple(ContextOf(device), call);
  }
}

void FillAttentionOps(CudaOps& ops) {
  ops.attention_forward = ForwardCuda;
  ops.attention_backward = BackwardCuda;
  ops.attention_block_forward = BlockForwardCuda;
  ops.attention_block_backward = BlockBackwardCuda;
}

}  // namespace trimtab
