#include "engine/infer/lookup.h"

#include <algorithm>

namespace trimtab {

std::vector<int32_t> LookUpContinuation(std::span<const int32_t> history, int64_t most) {
  for (const size_t length : {size_t{3}, size_t{2}}) {
    if (history.size() <= length || most <= 0) continue;
    const auto pattern = history.last(length);
    for (size_t begin = history.size() - length; begin-- > 0;) {
      if (!std::ranges::equal(history.subspan(begin, length), pattern)) continue;
      const auto rest = history.subspan(begin + length);
      const size_t count = std::min(rest.size(), static_cast<size_t>(most));
      return {rest.begin(), rest.begin() + static_cast<int64_t>(count)};
    }
  }
  return {};
}

}  // namespace trimtab
