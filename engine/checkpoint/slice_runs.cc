#include "engine/checkpoint/slice_runs.h"

#include <algorithm>

namespace trimtab {

std::vector<int64_t> FullShape(const ParameterSpec& spec) {
  if (!spec.is_matrix) return {spec.partition.full_rows};
  return {spec.partition.full_rows, spec.partition.full_columns};
}

void ForEachRun(const ParameterSpec& spec, int64_t begin, int64_t end,
                const std::function<void(int64_t local, int64_t full, int64_t count)>& visit) {
  const Partition& partition = spec.partition;
  const bool whole_rows = spec.columns == partition.full_columns;
  for (const RowSegment& segment : partition.segments) {
    // Whole rows follow each other in both tensors, so the segment is one run.
    const int64_t rows_per_run = whole_rows ? segment.rows : 1;
    for (int64_t row = 0; row < segment.rows; row += rows_per_run) {
      const int64_t local = (segment.local_begin + row) * spec.columns;
      const int64_t full =
          (segment.global_begin + row) * partition.full_columns + partition.column_begin;
      const int64_t first = std::max(begin, local);
      const int64_t last = std::min(end, local + rows_per_run * spec.columns);
      if (first < last) visit(first, full + (first - local), last - first);
    }
  }
}

}  // namespace trimtab
