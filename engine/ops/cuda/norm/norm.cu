// LayerNorm and RMSNorm: entries over the kernels. Contract in engine/ops/norm/norm.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/norm/norm_backward.h"
#include "engine/ops/cuda/norm/norm_forward.h"

namespace trimtab {
namespace {

// RMSNorm where `bias` and `mean` are undefined.
template <bool kCentered>
void Forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const NormOptions& options,
             const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  if (x.numel() == 0) return;
  const LaunchContext context = ContextOf(y.device());
  DispatchFloat(x.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    const NormInput<T> in = {Data<T>(x),
                             Data<T>(weight),
                             Data<T>(bias),
                             Data<float>(mean),
                             Data<float>(rstd),
                             x.dim(0),
                             static_cast<int>(x.dim(1)),
                             static_cast<float>(options.epsilon),
                             OffsetOf(options.weight_plus_one)};
    const bool aligned = RowsAligned<T>(x.dim(1), in.x, in.weight, in.bias, Data<T>(y));
    LaunchNormForward<kCentered>(context, in, PlainRows<T>{Data<T>(y)}, aligned);
  });
}

void LayerNormForwardCuda(const Tensor& x, const Tensor& weight, const Tensor& bias,
                          const NormOptions& options, Tensor& y, Tensor& mean, Tensor& rstd) {
  Forward<true>(x, weight, bias, options, y, mean, rstd);
}

void LayerNormBackwardCuda(const Tensor& dy, const Tensor& x, const Tensor& weight,
                           const Tensor& mean, const Tensor& rstd, Tensor& dx, Tensor& dweight,
                           Tensor& dbias, bool accumulate, bool weight_plus_one,
                           const Fp8Beside& /*copies*/) {
  NormBackwardOver<true>(
      dy, x, weight, mean, rstd, dx, dweight, dbias, accumulate, weight_plus_one,
      [](auto*) { return NoCopies(); }, /*output_aligned=*/true);
}

void RmsNormForwardCuda(const Tensor& x, const Tensor& weight, const NormOptions& options,
                        Tensor& y, Tensor& rstd) {
  Forward<false>(x, weight, Tensor(), options, y, Tensor(), rstd);
}

void RmsNormBackwardCuda(const Tensor& dy, const Tensor& x, const Tensor& weight,
                         const Tensor& rstd, Tensor& dx, Tensor& dweight, bool accumulate,
                         bool weight_plus_one, const Fp8Beside& /*copies*/) {
  NormBackwardOver<false>(
      dy, x, weight, Tensor(), rstd, dx, dweight, Tensor(), accumulate, weight_plus_one,
      [](auto*) { return NoCopies(); }, /*output_aligned=*/true);
}

}  // namespace

void FillNormOps(CudaOps& ops) {
  ops.layer_norm_forward = LayerNormForwardCuda;
  ops.layer_norm_backward = LayerNormBackwardCuda;
  ops.rms_norm_forward = RmsNormForwardCuda;
  ops.rms_norm_backward = RmsNormBackwardCuda;
}

}  // namespace trimtab
