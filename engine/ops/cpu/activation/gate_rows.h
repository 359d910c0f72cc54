// CPU kernels of gate_rows.h.
#pragma once

#include <cstdint>

namespace trimtab {

void GateRowsCpu(int threads, int64_t rows, int64_t columns, const float* gate, const float* x,
                 float* y);
void GateRowsBackwardCpu(int threads, int64_t rows, int64_t columns, const float* gate,
                         const float* x, const float* dy, float* dx, float* dgate);

}  // namespace trimtab
