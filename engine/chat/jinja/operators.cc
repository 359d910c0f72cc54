#include "engine/chat/jinja/operators.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/chat/jinja/format.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/unicode.h"

namespace trimtab::jinja {
namespace {

constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void Unsupported(Arithmetic operation, const Value& left, const Value& right) {
  throw Failure(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'",
                            kSigns[static_cast<int>(operation)], left.type(), right.type()));
}

[[noreturn]] void Overflows() { throw Failure("an integer passes 64 bits"); }
[[noreturn]] void DividesByZero() { throw Failure("division by zero"); }

int64_t IntegerPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) Overflows();
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) Overflows();
  }
  return result;
}

Value OfIntegers(Arithmetic operation, int64_t left, int64_t right) {
  int64_t result = 0;
  switch (operation) {
    case Arithmetic::kAdd:
      if (__builtin_add_overflow(left, right, &result)) Overflows();
      return result;
    case Arithmetic::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) Overflows();
      return result;
    case Arithmetic::kMultiply:
      if (__builtin_mul_overflow(left, right, &result)) Overflows();
      return result;
    case Arithmetic::kDivide:
      if (right == 0) DividesByZero();
      return static_cast<double>(left) / static_cast<double>(right);
    case Arithmetic::kFloorDivide:
    case Arithmetic::kModulo: {
      if (right == 0) DividesByZero();
      if (right == -1) {
        if (operation == Arithmetic::kModulo) return int64_t{0};
        if (left == std::numeric_limits<int64_t>::min()) Overflows();
        return -left;
      }
      const bool rounds = left % right != 0 && (left < 0) != (right < 0);
      if (operation == Arithmetic::kModulo) return left % right + (rounds ? right : 0);
      return left / right - (rounds ? 1 : 0);
    }
    case Arithmetic::kPower:
      if (right >= 0) return IntegerPower(left, right);
      if (left == 0) DividesByZero();
      return std::pow(static_cast<double>(left), static_cast<double>(right));
  }
  return Value();
}

double FloatModulo(double left, double right) {
  double rest = std::fmod(left, right);
  if (rest != 0 && (rest < 0) != (right < 0)) rest += right;
  return rest;
}

Value OfFloats(Arithmetic operation, double left, double right) {
  const bool divides = operation == Arithmetic::kDivide || operation == Arithmetic::kFloorDivide ||
                       operation == Arithmetic::kModulo;
  if (divides && right == 0) DividesByZero();
  switch (operation) {
    case Arithmetic::kAdd:
      return left + right;
    case Arithmetic::kSubtract:
      return left - right;
    case Arithmetic::kMultiply:
      return left * right;
    case Arithmetic::kDivide:
      return left / right;
    case Arithmetic::kFloorDivide:
      return std::floor((left - FloatModulo(left, right)) / right + 0.5);
    case Arithmetic::kModulo:
      return FloatModulo(left, right);
    case Arithmetic::kPower: {
      const double result = std::pow(left, right);
      if (!std::isfinite(result) && std::isfinite(left)) throw Failure("the power is no number");
      return result;
    }
  }
  return Value();
}

Value Joined(const Value& left, const Value& right) {
  const bool markup = left.markup() || right.markup();
  const auto part = [markup](const Value& value) {
    return markup && !value.markup() ? Escaped(value.text()) : value.text();
  };
  SpendBytes(left.text().size() + right.text().size());
  Text text = part(left);
  text.Append(part(right));
  return Value(std::move(text), markup);
}

Value Repeated(const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (value.is_string()) {
    const size_t size = value.text().size();
    if (size > 0 && static_cast<uint64_t>(count) > (uint64_t{1} << 40) / size)
      SpendBytes(SIZE_MAX / 8);
    SpendBytes(size * static_cast<size_t>(count));
    Text text;
    if (size > 0) {
      for (int64_t i = 0; i < count; ++i) text.Append(value.text());
    }
    return Value(std::move(text), value.markup());
  }
  const std::vector<Value>& items = value.sequence()->items;
  if (items.empty()) count = 0;
  if (static_cast<uint64_t>(count) > (uint64_t{1} << 32)) SpendBytes(SIZE_MAX / 8);
  SpendBytes(items.size() * static_cast<size_t>(count) * sizeof(Value));
  std::vector<Value> all;
  for (int64_t i = 0; i < count; ++i) all.insert(all.end(), items.begin(), items.end());
  return value.sequence()->form == Sequence::Form::kTuple ? Value::Tuple(std::move(all))
                                                          : Value::List(std::move(all));
}

bool IsForm(const Value& value, Sequence::Form form) {
  return value.is_sequence() && value.sequence()->form == form;
}

bool CanRepeat(const Value& value) {
  return value.is_string() || IsForm(value, Sequence::Form::kList) ||
         IsForm(value, Sequence::Form::kTuple);
}

bool IsWhole(const Value& value) { return value.is_integer() || value.is_boolean(); }

/// Less, equal or greater: below, at or above 0.
int Order(const Value& left, const Value& right, const char* sign) {
  SpendStep();
  RequireDefined(left);
  RequireDefined(right);
  if (left.is_number() && right.is_number()) {
    if (IsWhole(left) && IsWhole(right)) {
      return (left.integer() > right.integer()) - (left.integer() < right.integer());
    }
    return (left.number() > right.number()) - (left.number() < right.number());
  }
  if (left.is_string() && right.is_string()) return left.bytes().compare(right.bytes());
  for (const Sequence::Form form : {Sequence::Form::kList, Sequence::Form::kTuple}) {
    if (!IsForm(left, form) || !IsForm(right, form)) continue;
    const std::vector<Value>& a = left.sequence()->items;
    const std::vector<Value>& b = right.sequence()->items;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!Equal(a[i], b[i])) return Order(a[i], b[i], sign);
    }
    return (a.size() > b.size()) - (a.size() < b.size());
  }
  throw Failure(fmt::format("'{}' not supported between instances of '{}' and '{}'", sign,
                            left.type(), right.type()));
}

bool IsNan(const Value& value) { return value.is_float() && std::isnan(value.number()); }

}  // namespace

void RequireDefined(const Value& value) {
  if (value.is_undefined()) throw Failure(*value.undefined_why());
}

Text Escaped(const Text& text) {
  return MapCharacters(text, [](size_t, uint32_t code) -> std::string {
    switch (code) {
      case '&':
        return "&amp;";
      case '<':
        return "&lt;";
      case '>':
        return "&gt;";
      case '\'':
        return "&#39;";
      case '"':
        return "&#34;";
      default:
        break;
    }
    std::string plain;
    AppendCharacter(code, plain);
    return plain;
  });
}

Value Apply(Arithmetic operation, const Value& left, const Value& right) {
  RequireDefined(left);
  if (operation == Arithmetic::kModulo && left.is_string()) {
    return Value(PercentFormat(left.text(), right), left.markup());
  }
  RequireDefined(right);
  if (left.is_number() && right.is_number()) {
    if (IsWhole(left) && IsWhole(right)) {
      return OfIntegers(operation, left.integer(), right.integer());
    }
    return OfFloats(operation, left.number(), right.number());
  }
  if (operation == Arithmetic::kMultiply) {
    if (CanRepeat(left) && IsWhole(right)) return Repeated(left, right.integer());
    if (CanRepeat(right) && IsWhole(left)) return Repeated(right, left.integer());
  }
  if (operation == Arithmetic::kAdd) {
    if (left.is_string() && right.is_string()) return Joined(left, right);
    for (const Sequence::Form form : {Sequence::Form::kList, Sequence::Form::kTuple}) {
      if (!IsForm(left, form) || !IsForm(right, form)) continue;
      std::vector<Value> items = left.sequence()->items;
      items.insert(items.end(), right.sequence()->items.begin(), right.sequence()->items.end());
      return form == Sequence::Form::kTuple ? Value::Tuple(std::move(items))
                                            : Value::List(std::move(items));
    }
    if (left.is_string()) {
      throw Failure(fmt::format("can only concatenate str (not \"{}\") to str", right.type()));
    }
  }
  Unsupported(operation, left, right);
}

Value Negated(const Value& value) {
  RequireDefined(value);
  if (value.is_float()) return -value.number();
  if (value.is_number()) return OfIntegers(Arithmetic::kSubtract, 0, value.integer());
  throw Failure(fmt::format("bad operand type for unary -: '{}'", value.type()));
}

Value Plus(const Value& value) {
  RequireDefined(value);
  if (value.is_float()) return value;
  if (value.is_number()) return value.integer();
  throw Failure(fmt::format("bad operand type for unary +: '{}'", value.type()));
}

bool Equal(const Value& left, const Value& right) {
  SpendStep();
  if (left.is_number() && right.is_number()) {
    if (IsWhole(left) && IsWhole(right)) return left.integer() == right.integer();
    return left.number() == right.number();
  }
  if (left.is_string() && right.is_string()) return left.bytes() == right.bytes();
  if (left.is_undefined() || left.is_none()) {
    return left.is_undefined() == right.is_undefined() && left.is_none() == right.is_none();
  }
  if (left.is_dict() && right.is_dict()) {
    if (left.dict()->entries().size() != right.dict()->entries().size()) return false;
    return std::ranges::all_of(left.dict()->entries(), [&](const auto& entry) {
      const Value* other = right.dict()->Find(entry.first);
      return other != nullptr && Equal(entry.second, *other);
    });
  }
  if (left.is_sequence() && right.is_sequence()) {
    const Sequence& a = *left.sequence();
    const Sequence& b = *right.sequence();
    if (a.form == Sequence::Form::kIterator) return &a == &b;
    return a.form == b.form && std::ranges::equal(a.items, b.items, Equal);
  }
  return left.object() != nullptr && left.object() == right.object();
}

bool Less(const Value& left, const Value& right) {
  return !IsNan(left) && !IsNan(right) && Order(left, right, "<") < 0;
}

bool Contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      throw Failure(
          fmt::format("'in <string>' requires string as left operand, not {}", item.type()));
    }
    SpendBytes(container.bytes().size() / 4);
    return container.bytes().find(item.bytes()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return dict->Find(item) != nullptr;
  if (container.is_undefined()) return false;
  if (!container.is_sequence()) {
    throw Failure(fmt::format("argument of type '{}' is not iterable", container.type()));
  }
  const auto equal = [&item](const Value& each) { return Equal(each, item); };
  if (container.sequence()->form != Sequence::Form::kIterator) {
    return std::ranges::any_of(container.sequence()->items, equal);
  }
  return std::ranges::any_of(Items(container), equal);
}

bool Compare(Comparison operation, const Value& left, const Value& right) {
  switch (operation) {
    case Comparison::kEqual:
      return Equal(left, right);
    case Comparison::kNotEqual:
      return !Equal(left, right);
    case Comparison::kIn:
      return Contains(right, left);
    case Comparison::kNotIn:
      return !Contains(right, left);
    default:
      break;
  }
  constexpr const char* kOrders[] = {"==", "!=", "<", "<=", ">", ">="};
  if (IsNan(left) || IsNan(right)) return false;
  const int order = Order(left, right, kOrders[static_cast<int>(operation)]);
  switch (operation) {
    case Comparison::kLess:
      return order < 0;
    case Comparison::kLessEqual:
      return order <= 0;
    case Comparison::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

}  // namespace trimtab::jinja
