// Attention on a cuda device, by whom: cuDNN, the project's tensor-core kernels, its plain ones.
// What they read and write is described in engine/ops/attention/attention.h.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/attention_block.h"
#include "engine/ops/cuda/context.h"

namespace trimtab {

enum class AttentionPass { kForward, kBackward };

struct AttentionForwardCall {
  AttentionShape shape;
  DType dtype = DType::kF32;
  const void* qkv = nullptr;
  void* out = nullptr;
  float* log_sum_exp = nullptr;
};

struct AttentionBackwardCall {
  AttentionShape shape;
  DType dtype = DType::kF32;
  const void* qkv = nullptr;
  const void* out = nullptr;
  const float* log_sum_exp = nullptr;
  const void* dout = nullptr;
  void* dqkv = nullptr;
  /// The op's scratch: fp32 sums of dq [N, H*D], for cuDNN, then row sums [B, H, T].
  float* scratch = nullptr;

  float* dquery_sums() const { return scratch; }
  float* row_sums() const { return scratch + shape.tokens() * shape.query_size(); }
};

/// What AttentionBlockForward and AttentionBlockBackward are called with.
struct AttentionBlockForwardCall {
  AttentionShape shape;
  RowLayout keys;
  AttentionBlock block;
  DType dtype = DType::kF32;
  const void* qkv = nullptr;
  const void* kv = nullptr;
  float* out = nullptr;
  float* log_sum_exp = nullptr;
};
struct AttentionBlockBackwardCall {
  AttentionShape shape;
  RowLayout keys;
  AttentionBlock block;
  DType dtype = DType::kF32;
  const void* qkv = nullptr;
  const void* kv = nullptr;
  const void* out = nullptr;
  const float* log_sum_exp = nullptr;
  const void* dout = nullptr;
  float* dquery = nullptr;
  void* dkv = nullptr;
  float* row_sums = nullptr;  // the op's scratch, [B, H, T]
};

enum class AttentionImplementation { kCudnn, kMma, kSimple };
std::string_view Name(AttentionImplementation implementation);

/// Why `implementation` cannot run such a call on `device`, in one line; empty when it can.
std::string AttentionRefusal(Device& device, AttentionImplementation implementation,
                             AttentionPass pass, const AttentionShape& shape, DType dtype);

/// The fastest that can, in the order above. Where gradients must have equal bits in every run,
/// not cuDNN's backward pass.
AttentionImplementation ChooseAttention(Device& device, AttentionPass pass,
                                        const AttentionShape& shape, DType dtype);

/// Runs a call with an implementation that can. Operands are aligned to 16 bytes, unless it is the
/// plain one.
void RunAttentionForward(Device& device, AttentionImplementation implementation,
                         const AttentionForwardCall& call);
void RunAttentionBackward(Device& device, AttentionImplementation implementation,
                          const AttentionBackwardCall& call);

/// Tensor cores through mma.sync, online softmax (Dao, FlashAttention-2, arXiv:2307.08691): bf16
/// and fp16, head sizes 64 and 128 (of values too), plain scores, operands aligned to 16 bytes.
/// Deterministic: the backward pass has one kernel for dk and dv, which walks over queries, and one
/// for dq, which walks over keys.
bool MmaAttentionTakes(const AttentionShape& shape, DType dtype);
void AttentionForwardMma(const LaunchContext& context, const AttentionForwardCall& call);
void AttentionBackwardMma(const LaunchContext& context, const AttentionBackwardCall& call);
void AttentionBlockForwardMma(const LaunchContext& context, const AttentionBlockForwardCall& call);
void AttentionBlockBackwardMma(const LaunchContext& context,
                               const AttentionBlockBackwardCall& call);

/// Plain CUDA C++ in fp32 arithmetic, any storage type: the last resort, and what the others are
/// checked with. Deterministic. Head sizes up to kMaxSimpleHeadSize.
inline constexpr int64_t kMaxSimpleHeadSize = 1024;
inline int64_t LargestHead(const AttentionShape& shape) {
  return std::max(shape.head_size, shape.value_size());
}
void AttentionForwardSimple(const LaunchContext& context, const AttentionForwardCall& call);
void AttentionBackwardSimple(const LaunchContext& context, const AttentionBackwardCall& call);
void AttentionBlockForwardSimple(const LaunchContext& context,
                                 const AttentionBlockForwardCall& call);
void AttentionBlockBackwardSimple(const LaunchContext& context,
                                  const AttentionBlockBackwardCall& call);

/// row_sums[b, h, t] = sum over d of dout * out, what the softmax subtracts in the backward pass.
void AttentionRowSums(const LaunchContext& context, const AttentionShape& shape, DType dtype,
                      const void* out, const void* dout, float* row_sums);

}  // namespace trimtab
