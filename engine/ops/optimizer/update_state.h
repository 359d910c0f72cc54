// What updates of parameters share: how their state may be stored, and what changes between steps.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"

namespace trimtab {

/// Elements that share one scale where moments are fp16 or int8. fp16: the block's largest
/// magnitude divided by kMomentLargest, so that is what the largest is stored as; int8: the largest
/// magnitude itself (moment_codes.h). 0 for a block of zeros.
inline constexpr int64_t kMomentBlock = 128;
inline constexpr float kMomentLargest = 32768.0f;

/// Whether moments of that type have scales.
constexpr bool IsScaledMoment(DType dtype) { return dtype == DType::kF16 || dtype == DType::kI8; }

/// What changes from step to step stands in device memory, fp32 [kUpdateScalarCount], so that
/// captured work can be replayed with other values. The host writes the first four, Clip the rest.
enum UpdateScalar : int {
  kLearningRate,
  kBiasCorrection,  // 1 / (1 - beta1^step)
  kRootCorrection,  // 1 / sqrt(1 - beta2^step)
  kLossScale,       // gradients are this many times too large
  kGradientNorm,    // global, before clipping, loss scale taken out
  kGradientScale,   // what updates multiply gradients by: clipping, and the loss scale taken out
  kApply,           // 1, or 0 when the norm is not finite: updates then change nothing
};
inline constexpr int64_t kUpdateScalarCount = 7;

/// `sums` [n] fp32 are sums of squares whose total is the square of the scaled norm. `max_norm` 0
/// turns clipping off.
OpRecord ClipRecord(int64_t numel);
void Clip(const Tensor& sums, float max_norm, Tensor& scalars);

/// A weight and what completes it to fp32, both [n].
struct MasterWeight {
  Tensor weight{};  // fp32, bf16 or fp16
  Tensor master{};  // undefined when weight is fp32; else fp32, or uint16: see JoinMaster
};
/// Refuses tensors that are no such pair of `n` elements on `device`.
void CheckMasterWeight(OpKind op, const MasterWeight& weight, int64_t n, const Device& device);
/// Bytes of an element of both, moved once.
int64_t MasterWeightBytes(DType weight, DType master);

/// A moment [n]: fp32, bf16, fp16 or int8, the latter two with fp32 scales [ceil(n /
/// kMomentBlock)]; stored * scale = value.
struct Moment {
  Tensor values{};
  Tensor scales{};
};
/// Refuses tensors that are no such moment, of type `dtype`.
void CheckMoment(OpKind op, const char* name, const Moment& moment, int64_t n, DType dtype,
                 const Device& device);
/// Bytes of `n` elements with their scales.
int64_t MomentBytes(DType dtype, int64_t n);

/// master bits = (weight bits << 16) + remainder as a signed 16-bit integer: a bf16 weight, rounded
/// to nearest with ties away from zero, and 16 bits make an exact fp32 master.
/// Host helpers, for checkpoints and for first values.
uint16_t MasterRemainder(float master);
uint16_t MasterWeightBits(float master);
float JoinMaster(uint16_t weight_bits, uint16_t remainder);

/// Moments of either sign, or never negative ones, as int8 stores them, and back: host helpers.
enum class MomentSign { kEither, kNever };
uint8_t StoredMoment(MomentSign sign, float value);
float MomentValue(MomentSign sign, uint8_t stored);

}  // namespace trimtab
