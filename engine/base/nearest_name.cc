#include "engine/base/nearest_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace trimtab {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Names longer than this are nobody's typing error, and the distance takes time in proportion to
// the product of the lengths.
constexpr size_t kLongestName = 128;

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b) {
  // Rows i - 2, i - 1 and i of the table; row i holds the distances of a[0, i) to each b[0, j).
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) current[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(previous);
    previous.swap(current);
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = Lower(a[i - 1]) == Lower(b[j - 1]);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + !same});
      if (i > 1 && j > 1 && Lower(a[i - 1]) == Lower(b[j - 2]) &&
          Lower(a[i - 2]) == Lower(b[j - 1])) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
    }
  }
  return current[b.size()];
}

std::string NearestName(std::string_view name, std::span<const std::string> valid) {
  if (name.empty() || name.size() > kLongestName) return "";
  std::string nearest;
  size_t least = 0;
  for (const std::string& candidate : valid) {
    const size_t distance = EditDistance(name, candidate);
    const bool near = distance <= std::max<size_t>(1, std::max(name.size(), candidate.size()) / 3);
    const bool begins =
        name.size() >= 2 && EditDistance(name, candidate.substr(0, name.size())) == 0;
    if (!near && !begins) continue;
    if (nearest.empty() || distance < least) {
      nearest = candidate;
      least = distance;
    }
  }
  return nearest;
}

std::string SuggestName(std::string_view name, std::span<const std::string> valid) {
  const std::string nearest = NearestName(name, valid);
  if (!nearest.empty()) return fmt::format("; did you mean '{}'?", nearest);
  return fmt::format("; valid: {}", fmt::join(valid, ", "));
}

}  // namespace trimtab
