// Token and position embeddings. The token table may be a vocabulary shard (tensor parallel).
// Tables and activations are of one type (fp32, bf16, fp16), gradients of tables of another.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"
#include "engine/ops/attention/row_layout.h"

namespace trimtab {

OpRecord EmbeddingForwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
OpRecord EmbeddingBackwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32,
                                 DType gradient = DType::kF32);
OpRecord PositionForwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32);
OpRecord PositionBackwardRecord(int64_t rows, int64_t columns, DType dtype = DType::kF32,
                                DType gradient = DType::kF32);

/// out [N, C] = table[token - vocab_start] for tokens [N] (int32) that fall in this shard
/// [vocab_start, vocab_start + rows of table), zeros for the others.
void EmbeddingForward(const Tensor& tokens, const Tensor& table, int64_t vocab_start, Tensor& out);

/// dtable[token - vocab_start] += dout row, for tokens of this shard. Always adds.
void EmbeddingBackward(const Tensor& tokens, const Tensor& dout, int64_t vocab_start,
                       Tensor& dtable);

/// x [rows, C] += table[position]: rows are a run, from row_start on, of those of `layout`.
void PositionForward(const Tensor& table, int64_t row_start, const RowLayout& layout, Tensor& x);

/// dtable[position] += dx row. Always adds.
void PositionBackward(const Tensor& dx, int64_t row_start, const RowLayout& layout, Tensor& dtable);

}  // namespace trimtab
