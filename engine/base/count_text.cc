#include "engine/base/count_text.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace trimtab {

std::string Thousands(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string ShortCount(double value, int digits) {
  constexpr std::pair<double, char> kScales[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}};
  for (const auto& [scale, letter] : kScales) {
    // Less than half of the last digit below a scale rounds up to it: 1B, not 1e+03M.
    const double least = scale * (1 - 0.5 * std::pow(10.0, -digits));
    if (value >= least) return fmt::format("{:.{}g}{}", value / scale, digits, letter);
  }
  return value >= 1000 ? Thousands(std::llround(value)) : fmt::format("{:.{}g}", value, digits);
}

std::string Counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", Thousands(count), noun, count == 1 ? "" : "s");
}

}  // namespace trimtab
