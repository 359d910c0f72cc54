// Sizes and durations: parsing what people type and printing what they read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trimtab {

constexpr int64_t kKiB = int64_t{1} << 10;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

/// ceil(a / b) for non-negative a and positive b.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Smallest multiple of `multiple` that is >= `value`.
constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return CeilDiv(value, multiple) * multiple;
}

/// Bytes from "8GiB", "512MiB", "80GB", "1000" (plain bytes). Throws UsageError naming `what`.
int64_t ParseBytes(std::string_view text, std::string_view what);

/// "1.50 GiB", "12 B": three significant digits, binary units.
std::string FormatBytes(int64_t bytes);

/// "850 ms", "1.2 s", "3 min 20 s".
std::string FormatSeconds(double seconds);

}  // namespace trimtab
