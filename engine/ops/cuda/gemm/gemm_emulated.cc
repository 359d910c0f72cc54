// Matrix products of the emulated device. On a GPU they are cuBLASLt's, so there is no kernel to
// emulate: these are plain loops on the host, by the contract of Gemm.
#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/kernel.h"

namespace trimtab {
namespace {

/// A stored matrix to be read as fp32, after the work before it has run.
struct Source {
  const void* data;
  DType dtype;
  int64_t rows;
  int64_t columns;
  bool transposed;
  const float* scale;  // or null
};

Source SourceOf(const Tensor& matrix, Transpose transpose, const Tensor& scale) {
  return {matrix.raw(),
          matrix.dtype(),
          matrix.dim(0),
          matrix.dim(1),
          transpose == Transpose::kYes,
          scale.defined() ? scale.f32() : nullptr};
}

float ValueAt(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kBf16:
      return ToFloat(static_cast<const Bf16*>(data)[i]);
    case DType::kF16:
      return ToFloat(static_cast<const F16*>(data)[i]);
    case DType::kF8E4M3:
      return ToFloat(static_cast<const E4M3*>(data)[i]);
    case DType::kF8E5M2:
      return ToFloat(static_cast<const E5M2*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

void SetValue(void* data, DType dtype, int64_t i, float value) {
  DispatchFloat(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    static_cast<T*>(data)[i] = FromFloat<T>(value);
  });
}

// op(matrix), row-major.
std::vector<float> Widen(const Source& source) {
  std::vector<float> values(static_cast<size_t>(source.rows * source.columns));
  for (int64_t row = 0; row < source.rows; ++row) {
    for (int64_t column = 0; column < source.columns; ++column) {
      const int64_t to =
          source.transposed ? column * source.rows + row : row * source.columns + column;
      values[static_cast<size_t>(to)] =
          ValueAt(source.data, source.dtype, row * source.columns + column);
    }
  }
  return values;
}

void GemmEmulated(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b, Tensor& c,
                  const GemmOptions& options) {
  const Source left = SourceOf(a, trans_a, options.scale_a);
  const Source right = SourceOf(b, trans_b, options.scale_b);
  const int64_t m = c.dim(0);
  const int64_t n = c.dim(1);
  const int64_t k = a.dim(trans_a == Transpose::kNo ? 1 : 0);
  const void* bias = options.bias.defined() ? options.bias.raw() : nullptr;
  const void* addend = options.addend.defined() ? options.addend.raw() : nullptr;
  const void* gelu_of = options.gelu_of.defined() ? options.gelu_of.raw() : nullptr;
  void* gelu = options.gelu.defined() ? options.gelu.raw() : nullptr;
  void* row_sums = options.row_sums.defined() ? options.row_sums.raw() : nullptr;
  void* out = c.raw();
  const DType dtype = c.dtype();
  const bool accumulate = options.accumulate;
  emulation::Submit(ContextOf(c.device()).stream, [=] {
    const std::vector<float> left_values = Widen(left);
    const std::vector<float> right_values = Widen(right);
    const float factor = (left.scale != nullptr ? *left.scale : 1.0f) *
                         (right.scale != nullptr ? *right.scale : 1.0f);
    std::vector<float> sums(static_cast<size_t>(n));
    for (int64_t row = 0; row < m; ++row) {
      if (row_sums != nullptr) {
        const float* values = left_values.data() + row * k;
        SetValue(row_sums, dtype, row, std::accumulate(values, values + k, 0.0f));
      }
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int64_t inner = 0; inner < k; ++inner) {
        const float value = left_values[static_cast<size_t>(row * k + inner)];
        const float* from = right_values.data() + inner * n;
        for (int64_t column = 0; column < n; ++column) {
          sums[static_cast<size_t>(column)] += value * from[column];
        }
      }
      for (int64_t column = 0; column < n; ++column) {
        float value = factor * sums[static_cast<size_t>(column)];
        if (bias != nullptr) value += ValueAt(bias, dtype, column);
        const int64_t i = row * n + column;
        if (addend != nullptr) value += ValueAt(addend, dtype, i);
        if (accumulate) value += ValueAt(out, dtype, i);
        if (gelu_of != nullptr) value *= GeluDerivative(ValueAt(gelu_of, dtype, i));
        SetValue(out, dtype, i, value);
        if (gelu != nullptr) SetValue(gelu, dtype, i, Gelu(ValueAt(out, dtype, i)));
      }
    }
  });
}

}  // namespace

void FillGemmOps(CudaOps& ops) { ops.gemm = GemmEmulated; }

}  // namespace trimtab
