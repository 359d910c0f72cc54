// Which positions tokens have: of a sequence on a rank, or listed one by one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/base/error.h"
#include "engine/ops/math.h"

namespace trimtab {

/// The positions of the tokens of each sequence on this rank: two runs, in their order; or a list.
struct Positions {
  int64_t sequence = 0;           // tokens of a sequence on this rank
  int64_t run = 0;                // of these in the first run
  int64_t first = 0;              // position of the first run's first token
  int64_t second = 0;             // and of the second's
  const int32_t* list = nullptr;  // [sequence], on the device; where there is one, it says all
  int64_t list_end = 0;           // one past its largest

  /// All of a sequence of `length` tokens: as a number, it stands for itself.
  Positions(int64_t length)  // NOLINT(google-explicit-constructor)
      : sequence(length), run(length) {}

  /// The share of context-parallel rank `rank` of `ranks` in sequences of `length` tokens, a
  /// multiple of 2 * ranks unless ranks is 1. Of 2 * ranks equal runs it has number `rank` from
  /// the front and from the back, so that the causal scores of all ranks are equally many.
  static Positions ZigZag(int64_t length, int64_t ranks, int64_t rank) {
    if (ranks == 1) return length;
    TRIMTAB_ASSERT(length % (2 * ranks) == 0 && rank >= 0 && rank < ranks,
                   "the share of rank {} of {} in {} tokens", rank, ranks, length);
    Positions share(length / ranks);
    share.run = length / (2 * ranks);
    share.first = rank * share.run;
    share.second = (2 * ranks - 1 - rank) * share.run;
    return share;
  }

  /// Those in `list` [count], of the device of the ops that read it, which are below `end`. The
  /// list must outlive this.
  static Positions Listed(const int32_t* list, int64_t count, int64_t end) {
    Positions positions(count);
    positions.list = list;
    positions.list_end = end;
    return positions;
  }

  /// Of token `token` (from 0) of a sequence on this rank.
  TRIMTAB_HOST_DEVICE int64_t of(int64_t token) const {
    if (list != nullptr) return list[token];
    return token < run ? first + token : second + token - run;
  }
  /// One past the largest.
  int64_t end() const {
    if (list_end > 0) return list_end;
    return std::max(first + run, run < sequence ? of(sequence - 1) + 1 : 0);
  }
};

}  // namespace trimtab
