// Products with weights that are packed for reading: y = x W^T (+ b), W [out, in] stored in panels
// of columns of the result, as fp32 or in fewer bits.
//
// A weight is a number of the packed type times a scale: of its row of W for e4m3 and int8, of its
// row and a group of kInt4Group columns for int4, and none otherwise. On the cpu every element of y
// is one chain of multiply-adds in the order of the columns of W (with int4 one per group, and then
// one over the groups), whatever the other rows of x are. Only where the processor has tiles and
// takes the format (bf16, int8, int4; cpu/packed_tiles.h) is the order another one as soon as there
// are more than kSingleRows rows; then, too, it is the same for any such number of rows. With int8,
// inputs are then rounded to 2^-23 of the largest of their row.
//
// Numbers that a row of W has in neighbouring columns share a word of 32 bits, the first one at its
// lower end: from a register of words come, by shifts alone, one column after the other.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/device/tensor.h"
#include "engine/ops/gemm/grouped_gemm.h"

namespace trimtab {

/// What weights are packed in.
enum class WeightFormat { kF32, kBf16, kF16, kF8, kInt8, kInt4 };
/// "fp32", "bf16", "fp16", "fp8", "int8", "int4".
std::string_view Name(WeightFormat format);

/// Rows of W in a panel, and columns that share a scale in int4.
inline constexpr int64_t kPanelRows = 32;
inline constexpr int64_t kInt4Group = 32;

/// Rows of x that a cpu multiplies one by one: reading the numbers anew costs less than unpacking
/// them once for all, and so few leave a tile empty.
inline constexpr int64_t kSingleRows = 3;

/// Columns that share a word.
constexpr int64_t WordColumns(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 1;
    case WeightFormat::kBf16:
    case WeightFormat::kF16:
      return 2;
    case WeightFormat::kF8:
    case WeightFormat::kInt8:
      return 4;
    case WeightFormat::kInt4:
      return 8;
  }
  return 1;
}

/// Where a panel has the number of row `row` and column `column`, counted in numbers.
constexpr int64_t PanelIndex(int64_t word_columns, int64_t column, int64_t row) {
  return (column / word_columns * kPanelRows + row) * word_columns + column % word_columns;
}

/// Of int4, the bits of a column's numbers that are flipped where they are stored: all numbers but
/// the one on top of a word, which keeps its sign, become larger by 8 and so positive.
constexpr uint32_t Int4Flip(int64_t column) {
  constexpr int64_t kColumns = WordColumns(WeightFormat::kInt4);
  return column % kColumns == kColumns - 1 ? 0 : 8;
}

/// One matrix W [out, in], or several of the same size one after the other.
struct PackedMatrix {
  WeightFormat format = WeightFormat::kF32;
  int64_t matrices = 1;
  int64_t out = 0;
  int64_t in = 0;
  Tensor values;  // [matrices, panels, words of a row of W, 32 bits of each of kPanelRows rows]
  Tensor scales;  // fp32 [matrices, panels, groups, kPanelRows]; undefined without
  // fp32 [in]: what x is multiplied by first, column by column, of one matrix whose columns were
  // divided by the same (AWQ, arXiv:2306.00978); undefined without.
  Tensor input_scales;

  bool defined() const { return values.defined(); }
  int64_t panels() const;
  int64_t groups() const;  // of columns that have a scale of their own; 0 without scales
  int64_t bytes() const;   // of values and scales
};

/// Uninitialised memory for so many matrices under MemoryTag::kWeights. in is a multiple of
/// kInt4Group with int4.
PackedMatrix NewPackedMatrix(Device& device, WeightFormat format, int64_t matrices, int64_t out,
                             int64_t in);

/// Matrix `index` of several; shares their memory.
PackedMatrix MatrixOf(const PackedMatrix& packed, int64_t index);

/// Scales that a row of W of `in` columns has.
int64_t ScalesOf(WeightFormat format, int64_t in);

/// What a row of W [in] is packed as: `numbers` [in] and `scales` [ScalesOf(format, in)].
void RoundRow(WeightFormat format, std::span<const float> row, std::span<float> numbers,
              std::span<float> scales);

/// Rounds W [out, in], matrix `index`, into its place: to the nearest number that the format has,
/// scales so that the largest magnitude is the format's largest. No effect on meta.
void PackWeights(std::span<const float> weights, int64_t index, PackedMatrix& packed);
/// What was packed, as it multiplies [out, in].
void UnpackWeights(const PackedMatrix& packed, int64_t index, std::span<float> weights);

OpRecord PackedGemmRecord(int64_t m, const PackedMatrix& weight, DType dtype);
OpRecord GroupedPackedGemmRecord(int64_t m, const PackedMatrix& weights, DType dtype);

/// y [m, out] = (x [m, in] * input_scales) W^T + bias [out], which may be undefined. x, bias of one
/// type of fp32, bf16, fp16; y of that type or fp32.
void PackedGemm(const Tensor& x, const PackedMatrix& weight, const Tensor& bias, Tensor& y);

/// y [M, out]: each group of rows of x [M, in] times the matrix of its own.
void GroupedPackedGemm(const Tensor& x, const PackedMatrix& weights, GroupRows rows, Tensor& y);

}  // namespace trimtab
