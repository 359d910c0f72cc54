// Norms, activations and rotations whose result goes straight to fp8: what norm.h, activation.h and
// attention.h say, then what Quantize (quantize.h) says, in one pass and without a copy in between.
// A GPU saves writing the result, and reading it once or twice.
//
// The fp32 result is scaled and rounded to fp8 as it is: there is no rounding to the operands' type
// on the way, unless an op says otherwise. `scale` is fp32 [1]. out.rows and out.transposed are of
// one fp8 type: either, but e4m3 for SwiGLU and e5m2 for gradients, which is what training asks for
// (each type of each kernel costs seconds to compile). out.amax, if defined, is raised to the
// largest magnitude before scaling. x is fp32, bf16 or fp16, and so is what the op reads beside it,
// of the same type.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/fp8/quantize.h"
#include "engine/ops/norm/norm.h"

namespace trimtab {

/// Which copies an op writes.
struct Fp8Copies {
  bool rows = true;
  bool transposed = true;
};

OpRecord LayerNormForwardFp8Record(int64_t rows, int64_t columns, DType dtype, bool transposed,
                                   bool bias = true);
OpRecord RmsNormForwardFp8Record(int64_t rows, int64_t columns, DType dtype, bool transposed);
OpRecord GeluForwardFp8Record(int64_t rows, int64_t columns, DType dtype, const Fp8Copies& copies);
/// `dbias` says whether the op sums it, and `gradient` what it is stored in.
OpRecord GeluBackwardFp8Record(int64_t rows, int64_t columns, DType dtype, const Fp8Copies& copies,
                               bool dbias, DType gradient = DType::kF32);
/// `columns` is F, the width of the activation.
OpRecord SwiGluForwardFp8Record(int64_t rows, int64_t columns, DType dtype,
                                const Fp8Copies& copies);
OpRecord SwiGluBackwardFp8Record(int64_t rows, int64_t columns, DType dtype,
                                 const Fp8Copies& copies);
OpRecord RopeBackwardFp8Record(const AttentionShape& shape, DType dtype, const Fp8Copies& copies);

/// out [rows, C] = LayerNormForward; out.rows must be defined.
void LayerNormForwardFp8(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const NormOptions& options, const Tensor& scale, Fp8Output& out,
                         Tensor& mean, Tensor& rstd);
/// out [rows, C] = RmsNormForward; out.rows must be defined.
void RmsNormForwardFp8(const Tensor& x, const Tensor& weight, const NormOptions& options,
                       const Tensor& scale, Fp8Output& out, Tensor& rstd);

/// out [N, F] = gelu(x), x [N, F].
void GeluForwardFp8(const Tensor& x, const Tensor& scale, Fp8Output& out);
/// out [N, F], e5m2 = dy * gelu'(x). dbias [F] (fp32 or bf16), if defined, is overwritten by the
/// column sums of that, before scaling, or added to with `accumulate`.
void GeluBackwardFp8(const Tensor& x, const Tensor& dy, const Tensor& scale, Fp8Output& out,
                     Tensor& dbias, bool accumulate);

/// out [N, F], e4m3 = silu(gate) * up from gate_up [N, 2F].
void SwiGluForwardFp8(const Tensor& gate_up, const Tensor& scale, Fp8Output& out);
/// out [N, 2F], e5m2 = the gradient of gate_up [N, 2F] from dy [N, F].
void SwiGluBackwardFp8(const Tensor& gate_up, const Tensor& dy, const Tensor& scale,
                       Fp8Output& out);

/// Of a head, the most dims that may turn in RopeBackwardFp8: their angles are kept at hand.
inline constexpr int64_t kMaxRopeFp8Dims = 256;
/// out [N, H*D + KV*(D + Dv)], e5m2 = Quantize of the inverse Rope of dqkv, as that would be
/// stored; dqkv stays as it is.
void RopeBackwardFp8(const AttentionShape& shape, const Rotary& rotary, const Tensor& dqkv,
                     const Tensor& scale, Fp8Output& out);

}  // namespace trimtab
