// RowLayout: which rows of a pass belong to which sequence, and which positions they have.
// Training, packed documents, context parallelism and serving describe their rows with it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/tensor.h"
#include "engine/ops/math.h"

namespace trimtab {

/// The positions of a layout's rows, as kernels take them: by value.
struct RowPositions {
  int64_t sequence = 0;  // as in RowLayout, like the next three
  int64_t run = 0;
  int64_t first = 0;
  int64_t second = 0;
  const int32_t* list = nullptr;  // [rows]; nullptr: a row's position is its offset

  /// Returns how many tokens of its sequence precede row `row`.
  TRIMTAB_HOST_DEVICE int64_t offset(int64_t row) const {
    const int64_t token = row % sequence;
    return token < run ? first + token : second + token - run;
  }
  /// Returns the position of row `row`.
  TRIMTAB_HOST_DEVICE int64_t of(int64_t row) const {
    return list != nullptr ? list[row] : offset(row);
  }
};

/// Neighbouring rows of a serving pass that hold neighbouring tokens of one request.
struct PagedSegment {
  int64_t first_row = 0;
  int64_t rows = 0;            // at least 1
  int64_t first_position = 0;  // of the first row's token; the others follow

  int64_t end_position() const { return first_position + rows; }
};

struct ScoreOptions;

/// The segments of a serving pass, and where a paged cache holds the keys and values of each.
struct PagedSegments {
  std::vector<PagedSegment> segments;  // in the order of their rows, which they cover
  Tensor segment_of;                   // [rows] int32: the segment of each row
  Tensor blocks;  // [segments, most blocks] int32: the cache's blocks of each segment, in order

  /// Returns one past the largest position.
  int64_t end_position() const;
  /// Returns the scores of one head that are computed.
  int64_t visible_scores(const ScoreOptions& scores) const;
  /// Returns the keys of one head that are read: of every segment those that its rows see.
  int64_t visible_keys(const ScoreOptions& scores) const;
};

/// `batch` sequences of `sequence` rows each, in this order in memory. A sequence is cut over the
/// context-parallel ranks: this rank holds two runs of its tokens, which are in order.
///
/// A sequence may hold several documents. Then `positions` lists each row's position in its own
/// document, and a row at position p sees its own key and the p keys before it: its document up to
/// itself. In serving there is one "sequence" of all rows, which is divided into segments.
struct RowLayout {
  int64_t batch = 0;     // B
  int64_t sequence = 0;  // rows of each sequence on this rank
  int64_t run = 0;       // of them in the first run
  int64_t first = 0;     // offset in the sequence of the first run's first token
  int64_t second = 0;    // and of the second run's
  Tensor positions{};    // [rows] int32; undefined: a row's position is its offset
  std::shared_ptr<const PagedSegments> paged{};  // nullptr in training

  RowLayout() = default;
  /// Whole sequences of one document each.
  RowLayout(int64_t sequences, int64_t length) : batch(sequences), sequence(length), run(length) {}

  /// The share of context-parallel rank `rank` of `ranks` in sequences of `length` tokens, a
  /// multiple of 2 * ranks unless ranks is 1. Of 2 * ranks equal runs it has number `rank` from
  /// the front and from the back, so that the causal scores of all ranks are equally many.
  static RowLayout ZigZag(int64_t batch, int64_t length, int64_t ranks, int64_t rank);

  /// The rows of a serving pass: uploads positions and block tables to `device`, under `tag`.
  /// `blocks` are those of each segment, as many as it needs or more.
  static RowLayout Paged(Device& device, std::vector<PagedSegment> segments,
                         std::span<const std::vector<int32_t>> blocks, MemoryTag tag);

  int64_t rows() const { return batch * sequence; }  // N
  /// Returns the same rows without documents: positions are offsets.
  RowLayout WithoutDocuments() const;
  /// Returns how many tokens of its sequence precede row `row`.
  int64_t offset(int64_t row) const { return view().offset(row); }
  /// Returns one past the largest position that a row may have.
  int64_t end_position() const;
  /// Returns what kernels take. The layout must outlive it.
  RowPositions view() const {
    return {sequence, run, first, second,
            positions.defined() ? static_cast<const int32_t*>(positions.raw()) : nullptr};
  }
};

}  // namespace trimtab
