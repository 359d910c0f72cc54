// Matrix products of groups of rows, each with a matrix of its own: the experts of a layer. The
// rows of group g stand together, after those of the groups before it; `rows` says how many each
// has.
#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/gemm/gemm.h"

namespace trimtab {

/// How many rows each group has, on the host.
using GroupRows = std::span<const int64_t>;

/// Cost of the products of `groups` groups with m rows in all, or in GroupedGemmWeights with k rows
/// in all. Dimensions are those of the mean group, FLOPs and bytes those of all.
OpRecord GroupedGemmRecord(int64_t groups, int64_t m, int64_t n, int64_t k,
                           const GemmTypes& types = {});
OpRecord GroupedGemmWeightsRecord(int64_t groups, int64_t m, int64_t n, int64_t k, bool accumulate,
                                  const GemmTypes& types = {});
OpRecord GroupedAddBiasRecord(int64_t rows, int64_t columns, int64_t groups,
                              DType dtype = DType::kF32);
OpRecord GroupedBiasBackwardRecord(int64_t rows, int64_t columns, int64_t groups,
                                   DType dtype = DType::kF32, DType gradient = DType::kF32);

/// c [M, n] = of each group its rows of a [M, k] times b[g]; b is [G, k, n] or, transposed,
/// [G, n, k]. All of one type of fp32, bf16, fp16; or a and b are fp8 as Gemm takes it, b
/// transposed, and c is what Gemm gives. Of the options neither accumulate nor bias.
void GroupedGemm(const Tensor& a, const Tensor& b, Transpose trans_b, GroupRows rows, Tensor& c,
                 const GemmOptions& options = {});

/// c [G, m, n] = (c +) of each group the transpose of its rows of a [K, m] times its rows of b
/// [K, n], both of one type of fp32, bf16, fp16; c is of that type or fp32. In fp8, a and b are
/// transposed copies as QuantizeGroups makes them (grouped_quantize.h). A group without rows adds
/// nothing. Of the options no bias.
void GroupedGemmWeights(const Tensor& a, const Tensor& b, GroupRows rows, Tensor& c,
                        const GemmOptions& options);

/// Rows of group g of x [M, n] += bias[g]; bias [G, n] of x's type.
void GroupedAddBias(const Tensor& bias, GroupRows rows, Tensor& x);
/// dbias [G, n] = (dbias +) of each group the column sums of its rows of dy [M, n].
void GroupedBiasBackward(const Tensor& dy, GroupRows rows, Tensor& dbias, bool accumulate);

}  // namespace trimtab
