// CPU kernels of elementwise.h: of values of any storage type, widened a block at a time.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/ops/math.h"

namespace trimtab {

void AddCpu(int threads, int64_t n, DType dtype, const void* x, void* y);
/// Where the rows of a matrix lie: the first one, and elements from one to the next.
template <typename Data>
struct RowsOf {
  DType dtype;
  Data* data;
  int64_t stride;
};
void CopyColumnsCpu(int threads, int64_t rows, int64_t columns, const RowsOf<const void>& source,
                    const RowsOf<void>& destination);
void FillCpu(int threads, int64_t n, float value, DType dtype, void* x);
/// `addend` may be null.
void AddBiasCpu(int threads, int64_t rows, int64_t columns, DType dtype, const void* bias,
                const void* addend, void* x);
void SoftCapCpu(int threads, int64_t n, const SoftCap& soft_cap, float* x);
void ClampCpu(int threads, int64_t n, float limit, const float* x, float* y);
void ClampBackwardCpu(int threads, int64_t n, float limit, const float* x, float* dx);
double SumSquaresCpu(int threads, int64_t n, DType dtype, const void* x);
double SumCpu(int threads, int64_t n, const float* x);

}  // namespace trimtab
