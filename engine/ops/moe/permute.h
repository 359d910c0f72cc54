// Tokens to the rows of their experts and back. A token has k choices; choice c = t k + j is the
// j-th of token t. The rows stand expert by expert.
#pragma once

#include <cstdint>

#include "engine/device/tensor.h"

namespace trimtab {

OpRecord SortByExpertRecord(int64_t rows, int64_t experts, int64_t tokens, int64_t topk);
OpRecord OrderArrivalsRecord(int64_t rows, int64_t ranks, int64_t experts);
OpRecord PermuteRecord(int64_t rows, int64_t columns, int64_t tokens, int64_t topk,
                       DType dtype = DType::kF32);
OpRecord UnpermuteRecord(int64_t rows, int64_t columns, int64_t tokens, int64_t topk, bool weighted,
                         DType dtype = DType::kF32);
OpRecord UnpermuteBackwardRecord(int64_t rows, int64_t columns, int64_t tokens, int64_t topk,
                                 DType dtype = DType::kF32);

/// Experts [first, first + count).
struct ExpertRange {
  int64_t first = 0;
  int64_t count = 0;
};

/// Where choices and rows find each other, all int32: row_of [N, k] the row of each choice, -1 for
/// a choice of none of `experts`; choice_of [R] the choice of each row, -1 for one that only fills
/// up. The rows of an expert are in the order of their choices. Each of `experts` has as many rows
/// as choices, R being all of them, or, where padded_rows is above 0, so many.
void SortByExpert(const Tensor& choice, const ExpertRange& experts, int64_t padded_rows,
                  Tensor& row_of, Tensor& choice_of);

/// Where R rows that came from other ranks stand in the order of experts. counts [ranks, E] (fp32,
/// whole numbers) has how many rows each rank sends for each of all experts; those for `experts`
/// came. They came rank by rank, of each by expert, in the order of ranks 0, lead, 2 lead, ...,
/// then 1, 1 + lead, ...; they stand expert by expert, of each in the order of the same ranks. Both
/// int32 [R]: by_expert has the row, as it came, of each row as it stands; by_rank the other way
/// round.
void OrderArrivals(const Tensor& counts, int64_t lead, const ExpertRange& experts,
                   Tensor& by_expert, Tensor& by_rank);

/// rows [R, C] = the token of each row's choice, of x [N, C]; zeros where the row has none.
void Permute(const Tensor& x, const Tensor& choice_of, int64_t topk, Tensor& rows);

/// y [N, C] = the sum over a token's choices of weights [N, k] (fp32; 1 where undefined) times
/// their rows of `rows` [R, C]; choices without a row add nothing.
void Unpermute(const Tensor& rows, const Tensor& row_of, const Tensor& weights, Tensor& y);

/// From dy [N, C]: drows [R, C] = the weight of each row's choice times its token's dy, zeros where
/// the row has none; dweights [N, k] (fp32) = dy times the row of each choice, 0 without one.
void UnpermuteBackward(const Tensor& dy, const Tensor& rows, const Tensor& row_of,
                       const Tensor& choice_of, const Tensor& weights, Tensor& drows,
                       Tensor& dweights);

}  // namespace trimtab
