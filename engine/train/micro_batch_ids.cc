#include "engine/train/micro_batch_ids.h"

#include <algorithm>

namespace trimtab {

MicroBatchIds ReadMicroBatch(const TokenSource& source, int64_t first_sample, int64_t length,
                             const RowLayout& layout, bool masks_documents) {
  MicroBatchIds ids;
  std::vector<int32_t> sample(static_cast<size_t>(length) + 1);
  std::vector<int32_t> positions(sample.size());
  std::vector<int64_t> begins;
  for (int64_t b = 0; b < layout.batch; ++b) {
    source.Sample(first_sample + b, sample);
    begins.clear();
    if (masks_documents) source.DocumentBegins(first_sample + b, length, begins);
    begins.push_back(length + 1);
    int64_t begin = 0;
    size_t next = 0;
    for (int64_t offset = 0; offset <= length; ++offset) {
      if (offset == begins[next]) begin = begins[next++];
      positions[static_cast<size_t>(offset)] = static_cast<int32_t>(offset - begin);
    }
    for (int64_t row = 0; row < layout.sequence; ++row) {
      const auto at = static_cast<size_t>(layout.offset(row));
      ids.tokens.push_back(sample[at]);
      // A token at position 0 is of another document than the one before it.
      ids.targets.push_back(positions[at + 1] > 0 ? sample[at + 1] : kNoTarget);
      if (masks_documents) ids.positions.push_back(positions[at]);
    }
  }
  return ids;
}

int64_t CountTargets(const TokenSource& source, int64_t first_sample, int64_t samples,
                     int64_t length, bool masks_documents) {
  int64_t count = samples * length;
  if (!masks_documents) return count;
  std::vector<int64_t> begins;
  for (int64_t i = 0; i < samples; ++i) {
    begins.clear();
    source.DocumentBegins(first_sample + i, length, begins);
    count -= std::ssize(begins);
  }
  return std::max<int64_t>(count, 1);
}

}  // namespace trimtab
