// How Python prints values, and as what they are iterated.
#pragma once

#include <string>
#include <vector>

#include "engine/chat/jinja/value.h"

namespace trimtab::jinja {

/// Python's str().
Text Str(const Value& value);
/// Python's repr().
Text Repr(const Value& value);
/// Python's repr() of a float: the shortest digits that read back as it.
std::string FloatRepr(double value);

/// Python's bool().
bool Truth(const Value& value);
/// The items that iterating gives; those of an iterator are then gone. Throws Failure.
std::vector<Value> Items(const Value& value);
/// Python's len(). Throws Failure.
int64_t Length(const Value& value);

}  // namespace trimtab::jinja
