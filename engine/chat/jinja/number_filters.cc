#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "engine/chat/jinja/arguments.h"
#include "engine/chat/jinja/filters.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/text_operations.h"

namespace trimtab::jinja {
namespace {

using Args = const Arguments&;

/// The text of a number without white space, sign and underscores between digits.
struct NumberText {
  std::string digits;
  bool negative = false;
};

NumberText Prepared(const Value& value) {
  NumberText number;
  number.digits = Strip(value.text(), Side::kBoth, std::nullopt).bytes();
  if (number.digits.starts_with('-') || number.digits.starts_with('+')) {
    number.negative = number.digits[0] == '-';
    number.digits.erase(0, 1);
  }
  for (size_t i = 1; i + 1 < number.digits.size(); ++i) {
    const auto is_digit = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
    if (number.digits[i] == '_' && is_digit(number.digits[i - 1]) &&
        is_digit(number.digits[i + 1])) {
      number.digits.erase(i, 1);
    }
  }
  return number;
}

/// Python's float(str); nothing for what is no number.
std::optional<double> ReadFloat(const Value& value) {
  const NumberText number = Prepared(value);
  double result = 0;
  const char* end = number.digits.data() + number.digits.size();
  if (number.digits.starts_with('-')) return std::nullopt;
  const auto [last, error] = std::from_chars(number.digits.data(), end, result);
  if (error == std::errc::invalid_argument || last != end) return std::nullopt;
  return number.negative ? -result : result;
}

std::optional<int64_t> ReadInteger(const Value& value, int64_t base) {
  NumberText number = Prepared(value);
  if (base != 0 && (base < 2 || base > 36)) throw Failure("int() base must be 0 or 2 to 36");
  const std::string prefix = number.digits.substr(0, 2);
  const bool hex = prefix == "0x" || prefix == "0X";
  const bool octal = prefix == "0o" || prefix == "0O";
  const bool binary = prefix == "0b" || prefix == "0B";
  if (base == 0) base = hex ? 16 : octal ? 8 : binary ? 2 : 10;
  if ((hex && base == 16) || (octal && base == 8) || (binary && base == 2)) {
    number.digits.erase(0, 2);
  }
  int64_t result = 0;
  const char* end = number.digits.data() + number.digits.size();
  if (number.digits.starts_with('-')) return std::nullopt;
  const auto [last, error] =
      std::from_chars(number.digits.data(), end, result, static_cast<int>(base));
  if (error == std::errc::result_out_of_range) throw Failure("an integer passes 64 bits");
  if (error != std::errc() || last != end) return std::nullopt;
  return number.negative ? -result : result;
}

std::optional<int64_t> Truncated(double value) {
  if (!(std::abs(value) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Value FilterInt(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("int", arguments, {"default", "base"});
  RequireDefined(value);
  std::optional<int64_t> result;
  if (value.is_string()) {
    result = ReadInteger(value, matched.Integer(1, 10));
    if (!result) {
      if (const auto real = ReadFloat(value)) result = Truncated(*real);
    }
  } else if (value.is_float()) {
    result = Truncated(value.number());
  } else if (value.is_number()) {
    result = value.integer();
  }
  return result ? Value(*result) : matched.GetOr(0, int64_t{0});
}

Value FilterFloat(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("float", arguments, {"default"});
  RequireDefined(value);
  if (value.is_number()) return value.number();
  if (value.is_string()) {
    if (const auto number = ReadFloat(value)) return *number;
  }
  return matched.GetOr(0, 0.0);
}

Value FilterAbs(Interpreter& /*interpreter*/, const Value& value, Args /*arguments*/) {
  RequireDefined(value);
  if (!value.is_number()) throw Failure(fmt::format("bad operand for abs(): '{}'", value.type()));
  return value.number() < 0 ? Negated(value) : Plus(value);
}

/// Python's round(): to the even digit where both are as near.
double RoundHalfEven(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 300) return value;
  if (precision >= 0) {
    double rounded = 0;
    const std::string text = fmt::format("{:.{}f}", value, precision);
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    return rounded;
  }
  const double power = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / power) * power;
}

Value FilterRound(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("round", arguments, {"precision", "method"});
  RequireDefined(value);
  const int64_t precision = matched.Integer(0, 0);
  const std::string method = matched.TextOf(1).value_or(Text("common")).bytes();
  if (method != "common" && method != "ceil" && method != "floor") {
    throw Failure("method must be common, ceil or floor");
  }
  if (!value.is_number())
    throw Failure(fmt::format("round() expects a number, got {}", value.type()));
  if (method == "common") {
    if (value.is_float()) return RoundHalfEven(value.number(), precision);
    return precision >= 0 ? Plus(value)
                          : Value(static_cast<int64_t>(RoundHalfEven(value.number(), precision)));
  }
  const double power = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.number() * power;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / power;
}

Value FilterFileSize(Interpreter& interpreter, const Value& value, Args arguments) {
  const Matched matched("filesizeformat", arguments, {"binary"});
  const bool binary = matched.Boolean(0, false);
  const double bytes = FilterFloat(interpreter, value, {}).number();
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value("1 Byte");
  if (bytes < base) return Value(fmt::format("{} Bytes", std::trunc(bytes)));
  std::string text;
  double unit = base;
  for (const char prefix : std::string_view(binary ? "KMGTPEZY" : "kMGTPEZY")) {
    text = fmt::format("{:.1f} {}{}", bytes / unit, prefix, binary ? "iB" : "B");
    unit *= base;
    if (bytes < unit) break;
  }
  return Value(text);
}

}  // namespace

const std::vector<FilterRow>& NumberFilters() {
  static const std::vector<FilterRow> kFilters = {
      {"int", FilterInt},
      {"float", FilterFloat},
      {"abs", FilterAbs},
      {"round", FilterRound},
      {"filesizeformat", FilterFileSize},
  };
  return kFilters;
}

}  // namespace trimtab::jinja
