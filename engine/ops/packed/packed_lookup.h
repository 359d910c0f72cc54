// Rows of a packed matrix, looked up: the token table of a model whose output projection is the
// same matrix, so that one copy serves both.
#pragma once

#include "engine/ops/packed/packed_gemm.h"

namespace trimtab {

OpRecord PackedLookupRecord(int64_t rows, const PackedMatrix& table, DType dtype);

/// out [N, C] = row token - vocab_start of the one matrix `table`, times its input scales, for
/// tokens [N] (int32) that fall in this shard; zeros for the others. Rounded to out's type of fp32,
/// bf16, fp16.
void PackedLookup(const Tensor& tokens, const PackedMatrix& table, int64_t vocab_start,
                  Tensor& out);

}  // namespace trimtab
