// Norms whose result goes straight to fp8. Contract in engine/ops/fp8/fused_fp8.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/norm/norm_forward.h"
#include "engine/ops/cuda/norm/norm_fp8.h"

namespace trimtab {
namespace {

// RMSNorm where `bias` and `mean` are undefined.
template <bool kCentered>
void Forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const NormOptions& options,
             const Tensor& scale, const Fp8Output& out, const Tensor& mean, const Tensor& rstd) {
  if (x.numel() == 0) return;
  const LaunchContext context = ContextOf(scale.device());
  DispatchFloat(x.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    constexpr int kN = kPackSize<T>;
    DispatchFp8(out.rows.dtype(), [&](auto* code) {
      using F8 = std::remove_pointer_t<decltype(code)>;
      const NormInput<T> in = {Data<T>(x),
                               Data<T>(weight),
                               Data<T>(bias),
                               Data<float>(mean),
                               Data<float>(rstd),
                               x.dim(0),
                               static_cast<int>(x.dim(1)),
                               static_cast<float>(options.epsilon),
                               OffsetOf(options.weight_plus_one)};
      const Fp8Rows<F8> codes = Fp8RowsOf<F8>(scale, out);
      const bool aligned = RowsAligned<T>(x.dim(1), in.x, in.weight, in.bias) &&
                           IsAligned(codes.rows, kN * static_cast<int64_t>(sizeof(F8)));
      LaunchNormForward<kCentered>(context, in, codes, aligned);
    });
  });
}

void LayerNormForwardFp8Cuda(const Tensor& x, const Tensor& weight, const Tensor& bias,
                             const NormOptions& options, const Tensor& scale, Fp8Output& out,
                             Tensor& mean, Tensor& rstd) {
  Forward<true>(x, weight, bias, options, scale, out, mean, rstd);
}

void RmsNormForwardFp8Cuda(const Tensor& x, const Tensor& weight, const NormOptions& options,
                           const Tensor& scale, Fp8Output& out, Tensor& rstd) {
  Forward<false>(x, weight, Tensor(), options, scale, out, Tensor(), rstd);
}

}  // namespace

void FillNormFp8Ops(CudaOps& ops) {
  ops.layer_norm_forward_fp8 = LayerNormForwardFp8Cuda;
  ops.rms_norm_forward_fp8 = RmsNormForwardFp8Cuda;
}

}  // namespace trimtab
