// Counts as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trimtab {

/// 1234567 -> "1,234,567".
std::string Thousands(int64_t value);

/// 124475904 -> "124M" with three digits; 15e12 -> "15T", 14370 -> "14,370", 7.5 -> "7.5".
std::string ShortCount(double value, int digits = 4);

/// "1 step", "1,200 steps".
std::string Counted(int64_t count, std::string_view noun);

}  // namespace trimtab
