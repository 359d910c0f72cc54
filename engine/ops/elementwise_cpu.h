// CPU kernels of elementwise.h.
#pragma once

#include <cstdint>

namespace trimtab {

void AddCpu(int threads, int64_t n, const float* x, float* y);
void CopyCpu(int threads, int64_t n, const float* source, float* destination);
void FillCpu(int threads, int64_t n, float value, float* x);
void AddBiasCpu(int threads, int64_t rows, int64_t columns, const float* bias, float* x);
double SumSquaresCpu(int threads, int64_t n, const float* x);
double SumCpu(int threads, int64_t n, const float* x);

}  // namespace trimtab
