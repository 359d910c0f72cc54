// What operators do with values, as Python's do.
#pragma once

#include "engine/chat/jinja/value.h"

namespace trimtab::jinja {

enum class Arithmetic { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class Comparison {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

/// Throws Failure where Python raises, and where an integer passes 64 bits.
Value Apply(Arithmetic operation, const Value& left, const Value& right);
Value Negated(const Value& value);
Value Plus(const Value& value);

bool Compare(Comparison operation, const Value& left, const Value& right);
bool Equal(const Value& left, const Value& right);
/// left < right. Throws Failure for types that have no order.
bool Less(const Value& left, const Value& right);
bool Contains(const Value& container, const Value& item);

/// object.name: an attribute, else an item; undefined if there is neither.
Value GetAttribute(const Value& object, const std::string& name);
/// object[key]: an item, else an attribute; undefined if there is neither.
Value GetItem(const Value& object, const Value& key);
/// object[begin:end:step]; none for what is left out.
Value GetSlice(const Value& object, const Value& begin, const Value& end, const Value& step);

/// The method `name` of a string, list, tuple or dict; nothing if there is none.
std::optional<Value> Method(const Value& object, const std::string& name);

/// Throws Failure with what is undefined, if `value` is.
void RequireDefined(const Value& value);
/// Replaces &, <, >, ' and " by their names in HTML.
Text Escaped(const Text& text);

}  // namespace trimtab::jinja
