#include "engine/schedule/chunks.h"

#include "engine/base/error.h"

namespace trimtab {
namespace {

std::vector<int64_t> Balanced(int64_t num_layers, int64_t chunks) {
  if (chunks == 1) return {num_layers};
  const int64_t units = num_layers + 2;  // with the embedding and the loss
  TRIMTAB_ASSERT(units >= chunks, "{} layers over {} chunks", num_layers, chunks);
  const int64_t larger = units % chunks;
  std::vector<int64_t> counts(static_cast<size_t>(chunks), units / chunks);
  counts.front() += (larger >= 1 ? 1 : 0) - 1;
  counts.back() += (larger >= 2 ? 1 : 0) - 1;
  for (int64_t i = 2; i < larger; ++i) ++counts[static_cast<size_t>(chunks - i)];
  return counts;
}

}  // namespace

std::vector<LayerRange> CutLayers(int64_t num_layers, int64_t chunks, const StageLayers& counts) {
  TRIMTAB_ASSERT(counts.empty() || (counts.size() == chunks && counts.sum() == num_layers),
                 "{} given for {} layers over {} chunks", ToString(counts), num_layers, chunks);
  const std::vector<int64_t> balanced =
      counts.empty() ? Balanced(num_layers, chunks) : std::vector<int64_t>();
  std::vector<LayerRange> ranges;
  ranges.reserve(static_cast<size_t>(chunks));
  int64_t first = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t count = counts.empty() ? balanced[static_cast<size_t>(i)] : counts[i];
    ranges.push_back({first, count});
    first += count;
  }
  return ranges;
}

}  // namespace trimtab
