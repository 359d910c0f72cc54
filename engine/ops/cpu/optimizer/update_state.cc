#include "engine/ops/cpu/optimizer/update_state.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/cpu/elementwise/convert.h"
#include "engine/ops/kernel.h"
#include "engine/ops/math.h"
#include "engine/ops/optimizer/moment_codes.h"

namespace trimtab {
namespace {

static_assert(kConvertBlock % kMomentBlock == 0 && kSpanGrain % kConvertBlock == 0);

TRIMTAB_CLONES void JoinSpan(int64_t n, const uint16_t* weight, const uint16_t* remainder,
                             float* master) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) master[i] = MasterOfParts(weight[i], remainder[i]);
}

TRIMTAB_CLONES void SplitSpan(int64_t n, const float* master, uint16_t* weight,
                              uint16_t* remainder) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    weight[i] = WeightBitsOfMaster(master[i]);
    remainder[i] = RemainderOfMaster(master[i]);
  }
}

TRIMTAB_CLONES float LargestMoment(int64_t n, const float* x) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) largest = largest < std::abs(x[i]) ? std::abs(x[i]) : largest;
  return largest;
}

TRIMTAB_CLONES void DecodeSpan(int64_t n, const float* codes, const uint8_t* stored,
                               float* values) {
  for (int64_t i = 0; i < n; ++i) values[i] = codes[stored[i]];
}

TRIMTAB_CLONES void EncodeSpan(int64_t n, const float* codes, const float* values,
                               uint8_t* stored) {
  for (int64_t i = 0; i < n; ++i) stored[i] = MomentCode(codes, values[i]);
}

const float* MomentCodesOf(MomentSign sign) {
  return (sign == MomentSign::kEither ? kSignedMomentCodes : kUnsignedMomentCodes).values;
}

/// Elements from `begin` of a tensor on.
void* StateAt(const Tensor& tensor, int64_t begin) {
  return ElementAt(tensor.dtype(), tensor.raw(), begin);
}

}  // namespace

void LoadValues(const Tensor& tensor, int64_t begin, int64_t n, float* values) {
  WidenSpan(tensor.dtype(), n, StateAt(tensor, begin), values);
}

void LoadMoments(const Moment& moment, MomentSign sign, int64_t begin, int64_t n, float* values) {
  const DType dtype = moment.values.dtype();
  if (dtype == DType::kI8) {
    DecodeSpan(n, MomentCodesOf(sign), static_cast<const uint8_t*>(StateAt(moment.values, begin)),
               values);
  } else {
    LoadValues(moment.values, begin, n, values);
  }
  if (!IsScaledMoment(dtype)) return;
  for (int64_t i = 0; i < n; i += kMomentBlock) {
    const float scale = moment.scales.f32()[(begin + i) / kMomentBlock];
    ScaleSpan(std::min(kMomentBlock, n - i), scale, values + i);
  }
}

void StoreMoments(const Moment& moment, MomentSign sign, int64_t begin, int64_t n, float* values) {
  const DType dtype = moment.values.dtype();
  for (int64_t i = 0; IsScaledMoment(dtype) && i < n; i += kMomentBlock) {
    const int64_t count = std::min(kMomentBlock, n - i);
    float& scale = moment.scales.f32()[(begin + i) / kMomentBlock];
    float inverse = 0;
    const float largest = LargestMoment(count, values + i);
    if (dtype == DType::kF16) {
      MomentScale(largest, scale, inverse);
    } else {
      MomentCodeScale(largest, scale, inverse);
    }
    ScaleSpan(count, inverse, values + i);
  }
  if (dtype == DType::kI8) {
    return EncodeSpan(n, MomentCodesOf(sign), values,
                      static_cast<uint8_t*>(StateAt(moment.values, begin)));
  }
  RoundSpan(dtype, n, values, StateAt(moment.values, begin));
}

void LoadMaster(const MasterWeight& weight, int64_t begin, int64_t n, float* values) {
  if (!weight.master.defined() || weight.master.dtype() == DType::kF32) {
    return LoadValues(weight.master.defined() ? weight.master : weight.weight, begin, n, values);
  }
  JoinSpan(n, weight.weight.u16() + begin, weight.master.u16() + begin, values);
}

void StoreMaster(const MasterWeight& weight, int64_t begin, int64_t n, const float* values) {
  if (weight.master.defined() && weight.master.dtype() == DType::kU16) {
    SplitSpan(n, values, weight.weight.u16() + begin, weight.master.u16() + begin);
    return;
  }
  if (weight.master.defined()) RoundSpan(DType::kF32, n, values, StateAt(weight.master, begin));
  RoundSpan(weight.weight.dtype(), n, values, StateAt(weight.weight, begin));
}

}  // namespace trimtab
