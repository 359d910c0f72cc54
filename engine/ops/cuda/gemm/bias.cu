// The gradient of a bias: column sums. Contract in engine/ops/gemm/gemm.h.
#include "engine/ops/cuda/column_sums.h"
#include "engine/ops/cuda/elementwise/fill.h"

namespace trimtab {
namespace {

template <typename T>
struct MatrixValues {
  const T* matrix;
  int64_t columns;

  template <int N>
  __device__ __forceinline__ void operator()(int64_t row, int64_t column, float (&v)[1][N]) const {
    LoadFloats(matrix + row * columns + column, v[0]);
  }
};

void BiasBackwardCuda(const Tensor& dy, Tensor& dbias, bool accumulate) {
  const LaunchContext context = ContextOf(dbias.device());
  const int64_t columns = dbias.numel();
  if (columns == 0) return;
  const int64_t rows = dy.numel() / columns;
  DispatchFloat(dy.dtype(), [&](auto* value) {
    using T = std::remove_pointer_t<decltype(value)>;
    constexpr int kN = kPackSize<T>;
    DispatchGradient(dbias.dtype(), [&](auto* gradient) {
      using G = std::remove_pointer_t<decltype(gradient)>;
      const MatrixValues<T> values{static_cast<const T*>(dy.raw()), columns};
      const ColumnTargets<G> targets{{static_cast<G*>(dbias.raw()), nullptr}, accumulate};
      if (RowsAligned<T>(columns, dy.raw())) {
        LaunchColumnSums<kN, 1>(context, values, rows, columns, targets);
      } else {
        LaunchColumnSums<1, 1>(context, values, rows, columns, targets);
      }
    });
  });
}

}  // namespace

void FillBiasOps(CudaOps& ops) { ops.bias_backward = BiasBackwardCuda; }

}  // namespace trimtab
