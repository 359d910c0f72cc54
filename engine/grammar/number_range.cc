#include "engine/grammar/number_range.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace trimtab {
namespace {

using Expr = Grammar::Expr;

/// Texts of magnitudes: numbers that are not negative.
class Magnitudes {
 public:
  Magnitudes(bool integers, Grammar& grammar) : integers_(integers), grammar_(grammar) {}

  Expr Any() {
    const Expr whole =
        grammar_.Choice({grammar_.Bytes("0"), grammar_.Sequence({Digit('1', '9'), Digits(0)})});
    return grammar_.Sequence({whole, AnyFraction()});
  }

  Expr AtLeast(const Decimal& bound, bool exclusive) {
    const std::string& whole = bound.whole;
    const auto size = std::ssize(whole);
    std::vector<Expr> branches;
    branches.push_back(
        grammar_.Sequence({Digit('1', '9'), Digits(size), AnyFraction()}));  // more digits
    for (int64_t i = 0; i < size; ++i) {
      const char digit = whole[static_cast<size_t>(i)];
      if (digit == '9') continue;
      branches.push_back(grammar_.Sequence(
          {grammar_.Bytes(std::string_view(whole).substr(0, static_cast<size_t>(i))),
           Digit(static_cast<char>(digit + 1), '9'), Exactly(size - i - 1), AnyFraction()}));
    }
    branches.push_back(
        grammar_.Sequence({grammar_.Bytes(whole), FractionAtLeast(bound.fraction, exclusive)}));
    return grammar_.Choice(std::move(branches));
  }

  Expr AtMost(const Decimal& bound, bool exclusive) {
    const std::string& whole = bound.whole;
    const auto size = std::ssize(whole);
    std::vector<Expr> branches;
    if (size > 1) {  // fewer digits
      const Expr nonzero =
          grammar_.Sequence({Digit('1', '9'), grammar_.Repeat(Digit('0', '9'), 0, size - 2)});
      branches.push_back(
          grammar_.Sequence({grammar_.Choice({grammar_.Bytes("0"), nonzero}), AnyFraction()}));
    }
    for (int64_t i = 0; i < size; ++i) {
      const char digit = whole[static_cast<size_t>(i)];
      const char lowest = i == 0 && size > 1 ? '1' : '0';
      if (digit <= lowest) continue;
      branches.push_back(grammar_.Sequence(
          {grammar_.Bytes(std::string_view(whole).substr(0, static_cast<size_t>(i))),
           Digit(lowest, static_cast<char>(digit - 1)), Exactly(size - i - 1), AnyFraction()}));
    }
    branches.push_back(
        grammar_.Sequence({grammar_.Bytes(whole), FractionAtMost(bound.fraction, exclusive)}));
    return grammar_.Choice(std::move(branches));
  }

 private:
  Expr Digit(char first, char last) { return grammar_.Set(ByteRange(first, last)); }
  Expr Digits(int64_t least) {
    return grammar_.Repeat(Digit('0', '9'), least, Grammar::kUnbounded);
  }
  Expr Exactly(int64_t count) { return grammar_.Repeat(Digit('0', '9'), count, count); }

  Expr AnyFraction() {
    if (integers_) return grammar_.Sequence({});
    return grammar_.Optional(grammar_.Sequence({grammar_.Bytes("."), Digits(1)}));
  }

  Expr FractionAtLeast(const std::string& digits, bool exclusive) {
    if (digits.empty() && !exclusive) return AnyFraction();
    if (integers_) return grammar_.Never();
    // Digits that are not all 0 are more than none.
    const Expr more =
        exclusive ? grammar_.Sequence({Digits(0), Digit('1', '9'), Digits(0)}) : Digits(0);
    std::vector<Expr> branches = {grammar_.Sequence({grammar_.Bytes(digits), more})};
    for (size_t i = 0; i < digits.size(); ++i) {
      if (digits[i] == '9') continue;
      branches.push_back(
          grammar_.Sequence({grammar_.Bytes(std::string_view(digits).substr(0, i)),
                             Digit(static_cast<char>(digits[i] + 1), '9'), Digits(0)}));
    }
    return grammar_.Sequence({grammar_.Bytes("."), grammar_.Choice(std::move(branches))});
  }

  Expr FractionAtMost(const std::string& digits, bool exclusive) {
    const bool none = !digits.empty() || !exclusive;  // without a fraction it is low enough
    if (integers_) return none ? grammar_.Sequence({}) : grammar_.Never();
    const Expr zeros = grammar_.Repeat(grammar_.Bytes("0"), 0, Grammar::kUnbounded);
    std::vector<Expr> branches;
    if (!exclusive) {
      const Expr end = digits.empty() ? grammar_.Sequence({grammar_.Bytes("0"), zeros}) : zeros;
      branches.push_back(grammar_.Sequence({grammar_.Bytes(digits), end}));
    }
    for (size_t i = 0; i < digits.size(); ++i) {
      const Expr same = grammar_.Bytes(std::string_view(digits).substr(0, i));
      if (i > 0) branches.push_back(same);
      if (digits[i] > '0') {
        branches.push_back(
            grammar_.Sequence({same, Digit('0', static_cast<char>(digits[i] - 1)), Digits(0)}));
      }
    }
    const Expr some =
        grammar_.Sequence({grammar_.Bytes("."), grammar_.Choice(std::move(branches))});
    return none ? grammar_.Optional(some) : some;
  }

  bool integers_;
  Grammar& grammar_;
};

}  // namespace

Decimal Decimal::Parse(std::string_view number) {
  constexpr int kMostExponent = 400;
  Decimal decimal;
  if (number.starts_with('-')) {
    decimal.negative = true;
    number.remove_prefix(1);
  }
  const size_t mark = std::min(number.find_first_of("eE"), number.size());
  int exponent = 0;
  if (mark < number.size()) {
    exponent = std::stoi(std::string(number.substr(mark + 1)));
    if (exponent > kMostExponent || exponent < -kMostExponent) {
      throw InputError(fmt::format("the number {} is beyond a double's range", number));
    }
  }
  const std::string_view mantissa = number.substr(0, mark);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  std::string digits(mantissa.substr(0, point));
  if (point < mantissa.size()) digits += mantissa.substr(point + 1);
  auto whole = static_cast<int64_t>(point) + exponent;
  if (whole < 0) {
    digits.insert(0, static_cast<size_t>(-whole), '0');
    whole = 0;
  }
  if (whole > std::ssize(digits)) digits.append(static_cast<size_t>(whole) - digits.size(), '0');
  decimal.whole = digits.substr(0, static_cast<size_t>(whole));
  decimal.fraction = digits.substr(static_cast<size_t>(whole));
  decimal.whole.erase(0, std::min(decimal.whole.find_first_not_of('0'), decimal.whole.size()));
  if (decimal.whole.empty()) decimal.whole = "0";
  decimal.fraction.erase(decimal.fraction.find_last_not_of('0') + 1);
  if (decimal.whole == "0" && decimal.fraction.empty()) decimal.negative = false;
  return decimal;
}

Expr NumberRangeExpr(const std::optional<NumberBound>& low, const std::optional<NumberBound>& high,
                     bool integers, Grammar& grammar) {
  Magnitudes magnitudes(integers, grammar);
  // Bounds of magnitudes; those that every one meets, or none, are told apart from others.
  const auto between = [&](const std::optional<NumberBound>& least,
                           const std::optional<NumberBound>& most) {
    const Expr above = least ? magnitudes.AtLeast(least->value, least->exclusive) : -1;
    const Expr below = most ? magnitudes.AtMost(most->value, most->exclusive) : -1;
    if (above >= 0 && below >= 0) return grammar.Intersection(above, below);
    return above >= 0 ? above : below >= 0 ? below : magnitudes.Any();
  };
  std::vector<Expr> branches;
  const bool all_negative = high && high->value.negative;
  if (!all_negative) {
    branches.push_back(between(low && !low->value.negative ? low : std::nullopt, high));
  }
  if (!low || low->value.negative) {
    // "-0" is left to "0".
    const NumberBound zero = {{false, "0", ""}, /*exclusive=*/true};
    branches.push_back(
        grammar.Sequence({grammar.Bytes("-"), between(all_negative ? *high : zero, low)}));
  }
  return grammar.Choice(std::move(branches));
}

}  // namespace trimtab
