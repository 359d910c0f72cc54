// Products whose partial sums are as short as those of Hopper's tensor cores.
#pragma once

#include <cstdint>

#include "engine/ops/cpu/gemm/gemm.h"

namespace trimtab {

/// Terms that are added to a sum at once, and bits that each of them and the sum keep of the
/// largest among them: what wgmma does with fp8 operands (DeepSeek-V3 Technical Report,
/// arXiv:2412.19437, section 3.5.2).
inline constexpr int64_t kShortSumTerms = 32;
inline constexpr int kShortSumBits = 14;

/// As Sgemm with alpha 1: c [m, n] = op(a) [m, k] * op(b) [k, n], or with `add` that more.
void ShortSumGemm(int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b,
                  bool add, float* c, int64_t c_stride);

}  // namespace trimtab
