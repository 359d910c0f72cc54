// fp8 copies of groups of rows: what grouped products in fp8 take.
#pragma once

#include "engine/ops/fp8/quantize.h"
#include "engine/ops/gemm/grouped_gemm.h"

namespace trimtab {

/// Elements of a transposed copy of groups of rows of so many columns.
int64_t TransposedGroupsSize(GroupRows rows, int64_t columns);

/// As Quantize of x [M, C] with one scale for all groups. out.transposed has one dimension: group
/// after group [C, PaddedFp8Rows(rows of the group)], with zeros behind the rows, so that products
/// may sum over them whatever their number. Costs what Quantize does.
void QuantizeGroups(const Tensor& x, GroupRows rows, const Tensor& scale, Fp8Output& out);

}  // namespace trimtab
