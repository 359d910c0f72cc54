#include "engine/schedule/chunks.h"

#include <numeric>

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

std::vector<LayerRange> CutLayers(int64_t num_layers, int64_t chunks,
                                  std::span<const int64_t> counts) {
  const std::vector<int64_t> balanced =
      counts.empty() ? Balanced(num_layers, chunks) : std::vector<int64_t>();
  if (counts.empty()) counts = balanced;
  TRIMTAB_ASSERT(static_cast<int64_t>(counts.size()) == chunks &&
                     std::accumulate(counts.begin(), counts.end(), int64_t{0}) == num_layers,
                 "{} chunks given for {} of {} layers", counts.size(), chunks, num_layers);
  std::vector<LayerRange> ranges;
  int64_t first = 0;
  for (const int64_t count : counts) {
    ranges.push_back({first, count});
    first += count;
  }
  return ranges;
}

}  // namespace trimtab
