// AdamW (Loshchilov & Hutter, Decoupled Weight Decay Regularization, arXiv:1711.05101), with
// weights and state in fewer bits if asked: arithmetic is fp32 whatever they are stored in.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"

namespace trimtab {

/// Elements that share one scale where moments are fp16: the block's largest magnitude divided by
/// kMomentLargest, so that is what the largest is stored as; 0 for a block of zeros.
inline constexpr int64_t kMomentBlock = 128;
inline constexpr float kMomentLargest = 32768.0f;

/// What changes from step to step stands in device memory, fp32 [kUpdateScalarCount], so that
/// captured work can be replayed with other values. The host writes the first four, Clip the rest.
enum UpdateScalar : int {
  kLearningRate,
  kBiasCorrection,  // 1 / (1 - beta1^step)
  kRootCorrection,  // 1 / sqrt(1 - beta2^step)
  kLossScale,       // gradients are this many times too large
  kGradientNorm,    // global, before clipping, loss scale taken out
  kGradientScale,   // what AdamW multiplies gradients by: clipping, and the loss scale taken out
  kApply,           // 1, or 0 when the norm is not finite: AdamW then changes nothing
};
inline constexpr int64_t kUpdateScalarCount = 7;

/// `sums` [n] fp32 are sums of squares whose total is the square of the scaled norm. `max_norm` 0
/// turns clipping off.
OpRecord ClipRecord(int64_t numel);
void Clip(const Tensor& sums, float max_norm, Tensor& scalars);

struct AdamWConfig {
  float beta1 = 0;
  float beta2 = 0;
  float epsilon = 0;
  float weight_decay = 0;
  float learning_rate_factor = 1;  // of the learning rate among the scalars
};

/// What an update changes; all [n] but the scales.
struct AdamWState {
  Tensor weight{};   // fp32, bf16 or fp16
  Tensor master{};   // undefined when weight is fp32; else fp32, or uint16: see JoinMaster
  Tensor m{};        // fp32, bf16 or fp16
  Tensor v{};        // of m's type
  Tensor m_scale{};  // with fp16 moments: fp32 [ceil(n / kMomentBlock)]; stored * scale = value
  Tensor v_scale{};
};

/// Types of the tensors of an update. `master` is ignored when weight is fp32.
struct AdamWTypes {
  DType weight = DType::kF32;
  DType master = DType::kF32;
  DType moments = DType::kF32;
  DType gradient = DType::kF32;
};

/// Reads everything, writes everything but the gradient. Of the weight's type.
OpRecord AdamWRecord(int64_t numel, const AdamWTypes& types = {});

/// One step from gradient [n] (fp32 or bf16) and `scalars`.
void AdamW(const AdamWConfig& config, const Tensor& scalars, const Tensor& gradient,
           AdamWState& state);

/// master bits = (weight bits << 16) + remainder as a signed 16-bit integer: a bf16 weight, rounded
/// to nearest with ties away from zero, and 16 bits make an exact fp32 master.
/// Host helpers, for checkpoints and for first values.
uint16_t MasterRemainder(float master);
uint16_t MasterWeightBits(float master);
float JoinMaster(uint16_t weight_bits, uint16_t remainder);

}  // namespace trimtab
