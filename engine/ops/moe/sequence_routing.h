// Decisions of a router over all tokens of a sequence: Sinkhorn's iteration, and an expert's
// capacity. Every rank that has a part of a sequence takes them alike.
#pragma once

#include <cstdint>

#include "engine/config/model/moe_config.h"
#include "engine/device/tensor.h"
#include "engine/ops/math.h"

namespace trimtab {

/// Rows of B whole sequences of T tokens, as gathered from the context-parallel ranks that share
/// them: those of rank 0, then of rank 1, ...; of each its share of every sequence
/// (RowLayout::ZigZag).
struct SequenceRows {
  int64_t batch = 1;     // B
  int64_t sequence = 1;  // T
  int64_t ranks = 1;

  constexpr int64_t rows() const { return batch * sequence; }
  /// The row of the token at `position` of sequence b.
  TRIMTAB_HOST_DEVICE int64_t row(int64_t b, int64_t position) const {
    if (ranks == 1) return b * sequence + position;
    const int64_t run = sequence / (2 * ranks);
    const int64_t number = position / run;
    const bool first = number < ranks;
    const int64_t rank = first ? number : 2 * ranks - 1 - number;
    const int64_t share = sequence / ranks;
    return (rank * batch + b) * share + (first ? 0 : run) + position % run;
  }
};

/// Sinkhorn's iteration ends when what it multiplies the experts by changes by this much in the
/// mean (Megatron-Core's tolerance), or after so many rounds.
inline constexpr float kSinkhornTolerance = 1e-4f;
inline constexpr int kSinkhornRounds = 100;

OpRecord SinkhornChooseRecord(int64_t rows, int64_t experts);
OpRecord DropTokensRecord(int64_t rows, int64_t experts, int64_t topk);

/// choice [B*T, 1] = the expert of each token's highest entry of exp(logits) [B*T, E], rows and
/// columns of each sequence scaled by Sinkhorn's iteration so that all experts weigh alike
/// (Megatron-Core's sinkhorn; BASE layers, arXiv:2103.16716; Clark et al., arXiv:2202.01169).
void SinkhornChoose(const SequenceRows& sequences, const Tensor& logits, Tensor& choice);

/// kept [B*T, k] = choice, with -1 where an expert that `capacity` better tokens of the sequence
/// chose has dropped it: better are those of a higher weight [B*T, k], of equal ones and by
/// position the earlier.
void DropTokens(const SequenceRows& sequences, int64_t experts, int64_t capacity, DropPolicy policy,
                const Tensor& choice, const Tensor& weights, Tensor& kept);

}  // namespace trimtab
