#include <fmt/core.h>

#include <algorithm>

#include "engine/chat/jinja/arguments.h"
#include "engine/chat/jinja/filters.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/unicode.h"

namespace trimtab::jinja {
namespace {

Value Rest(const Value& value, const Value& divisor) {
  return Apply(Arithmetic::kModulo, value, divisor);
}

template <bool Yes>
bool IsBooleanOf(Interpreter& /*interpreter*/, const Value& value, const Arguments& /*all*/) {
  return value.is_boolean() && Truth(value) == Yes;
}

template <Comparison Operation>
bool Compares(Interpreter& /*interpreter*/, const Value& value, const Arguments& arguments) {
  return Compare(Operation, value, Matched("test", arguments, {"other"}).Get(0));
}

/// Python's islower and isupper: there is a letter, and none of the other case.
bool IsAllOf(const Value& value, bool (*is_case)(uint32_t), bool (*is_other)(uint32_t)) {
  bool found = false;
  bool other = false;
  const Text text = Str(value);
  ForEachCharacter(text.bytes(), [&](uint32_t code, size_t) {
    found |= is_case(code);
    other |= is_other(code);
  });
  return found && !other;
}

bool IsIterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_sequence() || value.is_dict() ||
         (value.object() != nullptr && value.type() == "LoopContext");
}

bool IsSequence(const Value& value) {
  if (value.is_undefined()) return false;
  const Sequence* sequence = value.sequence();
  return value.is_string() || value.is_dict() ||
         (sequence != nullptr && sequence->form != Sequence::Form::kIterator &&
          sequence->form != Sequence::Form::kView);
}

}  // namespace

const std::vector<TestRow>& AllTests() {
  using Args = const Arguments&;
  static const std::vector<TestRow> kTests = {
      {"defined", [](Interpreter&, const Value& v, Args) { return !v.is_undefined(); }},
      {"undefined", [](Interpreter&, const Value& v, Args) { return v.is_undefined(); }},
      {"none", [](Interpreter&, const Value& v, Args) { return v.is_none(); }},
      {"boolean", [](Interpreter&, const Value& v, Args) { return v.is_boolean(); }},
      {"true", IsBooleanOf<true>},
      {"false", IsBooleanOf<false>},
      {"integer", [](Interpreter&, const Value& v, Args) { return v.is_integer(); }},
      {"float", [](Interpreter&, const Value& v, Args) { return v.is_float(); }},
      {"number", [](Interpreter&, const Value& v, Args) { return v.is_number(); }},
      {"string", [](Interpreter&, const Value& v, Args) { return v.is_string(); }},
      {"escaped", [](Interpreter&, const Value& v, Args) { return v.markup(); }},
      {"mapping", [](Interpreter&, const Value& v, Args) { return v.is_dict(); }},
      {"sequence", [](Interpreter&, const Value& v, Args) { return IsSequence(v); }},
      {"iterable", [](Interpreter&, const Value& v, Args) { return IsIterable(v); }},
      {"callable", [](Interpreter&, const Value& v,
                      Args) { return v.object() != nullptr && v.object()->callable(); }},
      {"lower", [](Interpreter&, const Value& v, Args) { return IsAllOf(v, IsLower, IsUpper); }},
      {"upper", [](Interpreter&, const Value& v, Args) { return IsAllOf(v, IsUpper, IsLower); }},
      {"odd",
       [](Interpreter&, const Value& v, Args) { return Equal(Rest(v, int64_t{2}), int64_t{1}); }},
      {"even",
       [](Interpreter&, const Value& v, Args) { return Equal(Rest(v, int64_t{2}), int64_t{0}); }},
      {"divisibleby",
       [](Interpreter&, const Value& v, Args arguments) {
         const Matched matched("divisibleby", arguments, {"num"});
         return Equal(Rest(v, matched.Get(0)), int64_t{0});
       }},
      {"sameas",
       [](Interpreter&, const Value& v, Args arguments) {
         return v.IsSame(Matched("sameas", arguments, {"other"}).Get(0));
       }},
      {"filter", [](Interpreter&, const Value& v,
                    Args) { return v.is_string() && FindFilter(v.bytes()) != nullptr; }},
      {"test", [](Interpreter&, const Value& v,
                  Args) { return v.is_string() && FindTest(v.bytes()) != nullptr; }},
      {"in", Compares<Comparison::kIn>},
      {"eq", Compares<Comparison::kEqual>},
      {"equalto", Compares<Comparison::kEqual>},
      {"==", Compares<Comparison::kEqual>},
      {"ne", Compares<Comparison::kNotEqual>},
      {"!=", Compares<Comparison::kNotEqual>},
      {"gt", Compares<Comparison::kGreater>},
      {"greaterthan", Compares<Comparison::kGreater>},
      {">", Compares<Comparison::kGreater>},
      {"ge", Compares<Comparison::kGreaterEqual>},
      {">=", Compares<Comparison::kGreaterEqual>},
      {"lt", Compares<Comparison::kLess>},
      {"lessthan", Compares<Comparison::kLess>},
      {"<", Compares<Comparison::kLess>},
      {"le", Compares<Comparison::kLessEqual>},
      {"<=", Compares<Comparison::kLessEqual>},
  };
  return kTests;
}

}  // namespace trimtab::jinja
