// Numbers within bounds, as digits.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/grammar/grammar.h"

namespace trimtab {

/// A number with its digits: exact, however large.
struct Decimal {
  bool negative = false;
  std::string whole{};     // without leading zeros, "0" at least
  std::string fraction{};  // without trailing zeros

  /// Reads a JSON number. Throws InputError when its exponent is beyond a double's.
  static Decimal Parse(std::string_view number);
};

struct NumberBound {
  Decimal value{};
  bool exclusive = false;
};

/// JSON numbers without an exponent from `low` to `high`; whole ones alone with `integers`. At
/// least one bound is given.
Grammar::Expr NumberRangeExpr(const std::optional<NumberBound>& low,
                              const std::optional<NumberBound>& high, bool integers,
                              Grammar& grammar);

}  // namespace trimtab
