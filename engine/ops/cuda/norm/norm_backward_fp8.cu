// Backward passes of norms that also write fp8 copies of dx. Contract in engine/ops/norm/norm.h.
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/norm/norm_backward.h"
#include "engine/ops/cuda/norm/norm_fp8.h"

namespace trimtab {
namespace {

// Codes of what is stored in T.
template <typename T>
struct CodesOfStored : Fp8Rows<E5M2> {
  template <int N>
  __device__ __forceinline__ void Store(const NormPlace& place, const float (&values)[N]) {
    float stored[N];
#pragma unroll
    for (int j = 0; j < N; ++j) stored[j] = ToFloat(FromFloat<T>(values[j]));
    Fp8Rows<E5M2>::Store(place, stored);
  }
};

template <bool kCentered>
void BackwardBesideFp8(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                       const Tensor& rstd, const Tensor& dx, const Tensor& dweight,
                       const Tensor& dbias, bool accumulate, bool weight_plus_one,
                       const Fp8Beside& copies) {
  const Fp8Output& out = copies.out;
  const auto output_for = [&](auto* value) {
    return CodesOfStored<std::remove_pointer_t<decltype(value)>>{
        Fp8RowsOf<E5M2>(copies.scale, out)};
  };
  NormBackwardOver<kCentered>(dy, x, weight, mean, rstd, dx, dweight, dbias, accumulate,
                              weight_plus_one, output_for,
                              IsAligned(out.rows.raw(), 16 / SizeOf(x.dtype())));
}

void LayerNormBackwardBesideFp8Cuda(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                    const Tensor& mean, const Tensor& rstd, Tensor& dx,
                                    Tensor& dweight, Tensor& dbias, bool accumulate,
                                    bool weight_plus_one, const Fp8Beside& copies) {
  BackwardBesideFp8<true>(dy, x, weight, mean, rstd, dx, dweight, dbias, accumulate,
                          weight_plus_one, copies);
}

void RmsNormBackwardBesideFp8Cuda(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                  const Tensor& rstd, Tensor& dx, Tensor& dweight, bool accumulate,
                                  bool weight_plus_one, const Fp8Beside& copies) {
  BackwardBesideFp8<false>(dy, x, weight, Tensor(), rstd, dx, dweight, Tensor(), accumulate,
                           weight_plus_one, copies);
}

}  // namespace

void FillNormBackwardFp8Ops(CudaOps& ops) {
  ops.layer_norm_backward_beside_fp8 = LayerNormBackwardBesideFp8Cuda;
  ops.rms_norm_backward_beside_fp8 = RmsNormBackwardBesideFp8Cuda;
}

}  // namespace trimtab
