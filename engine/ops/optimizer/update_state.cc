#include "engine/ops/optimizer/update_state.h"

#include "engine/base/units.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/math.h"
#include "engine/ops/optimizer/moment_codes.h"

namespace trimtab {
namespace {

const float* CodesOf(MomentSign sign) {
  return (sign == MomentSign::kEither ? kSignedMomentCodes : kUnsignedMomentCodes).values;
}

}  // namespace

OpRecord ClipRecord(int64_t numel) {
  return {.kind = OpKind::kClip,
          .dims = {numel},
          .bytes = (numel + kUpdateScalarCount) * SizeOf(DType::kF32)};
}

void Clip(const Tensor& sums, float max_norm, Tensor& scalars) {
  constexpr OpKind kOp = OpKind::kClip;
  TRIMTAB_ASSERT(sums.defined(), "clip: sums is undefined");
  Device& device = sums.device();
  CheckOperand(kOp, "sums", sums, {sums.numel()}, device);
  CheckOperand(kOp, "scalars", scalars, {kUpdateScalarCount}, device);
  const OpScope scope(device, ClipRecord(sums.numel()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::clip)(sums, max_norm, scalars);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  double total = 0;
  for (int64_t i = 0; i < sums.numel(); ++i) total += static_cast<double>(sums.f32()[i]);
  float* values = scalars.f32();
  ClipByNorm(total, max_norm, values[kLossScale], values[kGradientNorm], values[kGradientScale],
             values[kApply]);
}

void CheckMasterWeight(OpKind op, const MasterWeight& weight, int64_t n, const Device& device) {
  CheckPlainFloat(op, "weight", weight.weight);
  const DType dtype = weight.weight.dtype();
  CheckOperand(op, "weight", weight.weight, {n}, device, dtype);
  if (dtype == DType::kF32) {
    TRIMTAB_ASSERT(!weight.master.defined(), "{}: an fp32 weight is its own master", Name(op));
    return;
  }
  const bool remainder = weight.master.defined() && weight.master.dtype() == DType::kU16;
  TRIMTAB_ASSERT(!remainder || dtype == DType::kBf16,
                 "{}: a remainder below a {} weight, expected bf16", Name(op), Name(dtype));
  CheckOperand(op, "master", weight.master, {n}, device, remainder ? DType::kU16 : DType::kF32);
}

int64_t MasterWeightBytes(DType weight, DType master) {
  return SizeOf(weight) + (weight != DType::kF32 ? SizeOf(master) : 0);
}

void CheckMoment(OpKind op, const char* name, const Moment& moment, int64_t n, DType dtype,
                 const Device& device) {
  if (moment.values.dtype() != DType::kI8) CheckPlainFloat(op, name, moment.values);
  CheckOperand(op, name, moment.values, {n}, device, dtype);
  if (!IsScaledMoment(dtype)) return;
  CheckOperand(op, "scales of moments", moment.scales, {CeilDiv(n, kMomentBlock)}, device);
}

int64_t MomentBytes(DType dtype, int64_t n) {
  const int64_t scales = IsScaledMoment(dtype) ? CeilDiv(n, kMomentBlock) : 0;
  return n * SizeOf(dtype) + scales * SizeOf(DType::kF32);
}

uint16_t MasterRemainder(float master) { return RemainderOfMaster(master); }
uint16_t MasterWeightBits(float master) { return WeightBitsOfMaster(master); }
float JoinMaster(uint16_t weight_bits, uint16_t remainder) {
  return MasterOfParts(weight_bits, remainder);
}

uint8_t StoredMoment(MomentSign sign, float value) { return MomentCode(CodesOf(sign), value); }
float MomentValue(MomentSign sign, uint8_t stored) { return CodesOf(sign)[stored]; }

}  // namespace trimtab
