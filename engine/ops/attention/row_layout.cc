#include "engine/ops/attention/row_layout.h"

#include <algorithm>
#include <utility>

#include "engine/ops/attention/attention.h"

namespace trimtab {
namespace {

/// Returns how many keys a query at `position` sees.
int64_t VisibleKeys(const ScoreOptions& scores, int64_t position) {
  return scores.window > 0 ? std::min(scores.window, position + 1) : position + 1;
}

}  // namespace

int64_t CausalScores(int64_t rows, int64_t window) {
  // The first rows see fewer keys than a window holds.
  const int64_t seen = window > 0 ? std::min(window, rows) : rows;
  return seen * (seen + 1) / 2 + (rows - seen) * seen;
}

int64_t PagedSegments::end_position() const {
  int64_t end = 0;
  for (const PagedSegment& each : segments) end = std::max(end, each.end_position());
  return end;
}

int64_t PagedSegments::visible_scores(const ScoreOptions& scores) const {
  int64_t sum = 0;
  for (const PagedSegment& each : segments) {
    sum += CausalScores(each.end_position(), scores.window) -
           CausalScores(each.first_position, scores.window);
  }
  return sum;
}

int64_t PagedSegments::visible_keys(const ScoreOptions& scores) const {
  int64_t sum = 0;
  for (const PagedSegment& each : segments) {
    sum += VisibleKeys(scores, each.first_position) + each.rows - 1;
  }
  return sum;
}

RowLayout RowLayout::ZigZag(int64_t batch, int64_t length, int64_t ranks, int64_t rank) {
  if (ranks == 1) return {batch, length};
  TRIMTAB_ASSERT(length % (2 * ranks) == 0 && rank >= 0 && rank < ranks,
                 "the share of rank {} of {} in {} tokens", rank, ranks, length);
  RowLayout share(batch, length / ranks);
  share.run = length / (2 * ranks);
  share.first = rank * share.run;
  share.second = (2 * ranks - 1 - rank) * share.run;
  return share;
}

RowLayout RowLayout::Paged(Device& device, std::vector<PagedSegment> segments,
                           std::span<const std::vector<int32_t>> blocks, MemoryTag tag) {
  TRIMTAB_ASSERT(!segments.empty() && blocks.size() == segments.size(),
                 "{} segments with {} tables of blocks", segments.size(), blocks.size());
  std::vector<int32_t> positions;
  std::vector<int32_t> segment_of;
  size_t most_blocks = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    const PagedSegment& each = segments[s];
    TRIMTAB_ASSERT(each.first_row == std::ssize(positions) && each.rows > 0,
                   "segment {} has {} rows from {}, expected some from {}", s, each.rows,
                   each.first_row, positions.size());
    for (int64_t i = 0; i < each.rows; ++i) {
      positions.push_back(static_cast<int32_t>(each.first_position + i));
      segment_of.push_back(static_cast<int32_t>(s));
    }
    most_blocks = std::max(most_blocks, blocks[s].size());
  }
  std::vector<int32_t> table(segments.size() * most_blocks);
  for (size_t s = 0; s < segments.size(); ++s) {
    std::copy(blocks[s].begin(), blocks[s].end(),
              table.begin() + static_cast<int64_t>(s * most_blocks));
  }
  const auto upload = [&](const Shape& shape, const std::vector<int32_t>& values) {
    Tensor tensor = Tensor::Empty(device, shape, DType::kI32, tag);
    CopyFromHost(tensor, std::span<const int32_t>(values));
    return tensor;
  };
  const auto count = std::ssize(positions);
  RowLayout layout(1, count);
  layout.positions = upload({count}, positions);
  auto paged = std::make_shared<PagedSegments>();
  paged->segments = std::move(segments);
  paged->segment_of = upload({count}, segment_of);
  paged->blocks = upload({std::ssize(blocks), static_cast<int64_t>(most_blocks)}, table);
  layout.paged = std::move(paged);
  return layout;
}

RowLayout RowLayout::WithoutDocuments() const {
  RowLayout layout = *this;
  layout.positions = {};
  return layout;
}

int64_t RowLayout::end_position() const {
  if (paged != nullptr) return paged->end_position();
  return std::max(first + run, run < sequence ? second + sequence - run : 0);
}

}  // namespace trimtab
