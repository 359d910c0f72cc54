// fp8: values times a scale, stored in e4m3 (forward) or e5m2 (gradients), beside the factor that
// undoes it (Micikevicius et al., FP8 Formats for Deep Learning, arXiv:2209.05433). One scale per
// tensor.
#pragma once

#include <cstdint>

#include "engine/base/units.h"
#include "engine/device/tensor.h"

namespace trimtab {

/// Floats from one inverse of a scale to the next. Products read a scale where it lies, and
/// cuBLASLt (since CUDA 12.9) only at multiples of 16 bytes.
inline constexpr int64_t kFp8InverseStride = 4;

/// The scales of S tensors, fp32 [S] each: stored = value * scale, value = stored * inverse.
struct Fp8Scales {
  Tensor scale{};    // [S]
  Tensor inverse{};  // [S, kFp8InverseStride]: the first of each row
};

OpRecord AmaxRecord(int64_t numel, DType dtype = DType::kF32);
/// amax [1] fp32 = the larger of amax and the largest |x|; NaN or infinity in x makes it infinity.
void Amax(const Tensor& x, Tensor& amax);

/// What the rows of a transposed copy are padded to, where products are to sum over them.
constexpr int64_t PaddedFp8Rows(int64_t rows) { return RoundUp(rows, 16); }

/// Where a quantised matrix goes; undefined tensors are not written. Both are of one fp8 type.
struct Fp8Output {
  Tensor rows{};        // [rows, C]
  Tensor transposed{};  // [C, rows], or [C, PaddedFp8Rows(rows)] with zeros behind the rows
  Tensor amax{};        // fp32 [1]: raised to the largest |x|, as by Amax
};

OpRecord QuantizeRecord(int64_t rows, int64_t columns, DType dtype, bool with_rows,
                        bool with_transposed);
/// Stores x [rows, C] (fp32, bf16, fp16) times scale [1]: rounded to nearest even, saturated at the
/// type's largest value, NaN kept.
void Quantize(const Tensor& x, const Tensor& scale, Fp8Output& out);

/// What Quantize makes of a result, as that is stored, written by the op that makes it while it is
/// at hand; out.rows must be defined where anything is.
struct Fp8Beside {
  Tensor scale{};
  Fp8Output out{};

  bool defined() const { return out.rows.defined(); }
};
/// `record`, whose dims are the rows and columns of a result, with copies of that written beside
/// it.
OpRecord BesideFp8(OpRecord record, bool with_transposed);

OpRecord Fp8ScalesRecord(int64_t scales, int64_t rows);
/// Sets `scales` so that the largest of each column of amax [rows, S] becomes fp8_max [S]. Where
/// that amax is 0 or not finite the scale stays. Row 0 is what ops raise; the rows below it are the
/// steps before (delayed scaling; with current scaling there are none). Afterwards every row has
/// moved down by one and row 0 is 0.
void UpdateFp8Scales(const Tensor& fp8_max, Tensor& amax, Fp8Scales& scales);

}  // namespace trimtab
