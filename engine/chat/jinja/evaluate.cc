#include <fmt/core.h>

#include "engine/chat/jinja/interpreter.h"
#include "engine/chat/jinja/print.h"

namespace trimtab::jinja {

Value Interpreter::EvaluateName(const std::string& name, const ScopePtr& scope) const {
  for (const Scope* each = scope.get(); each != nullptr; each = each->outer.get()) {
    const auto found = each->variables.find(name);
    if (found != each->variables.end()) return found->second;
  }
  return Value::Missing(fmt::format("'{}' is undefined", name));
}

Value Interpreter::PartOr(const ExpressionPtr& part, const ScopePtr& scope) {
  return part == nullptr ? Value() : Evaluate(*part, scope);
}

Arguments Interpreter::EvaluateArguments(const CallSyntax& call, const ScopePtr& scope) {
  Arguments arguments;
  for (const ExpressionPtr& each : call.positional) {
    arguments.positional.push_back(Evaluate(*each, scope));
  }
  for (const auto& [name, value] : call.keywords) {
    arguments.keywords.emplace_back(name, Evaluate(*value, scope));
  }
  if (call.more_positional) {
    for (Value& each : Items(Evaluate(*call.more_positional, scope))) {
      arguments.positional.push_back(std::move(each));
    }
  }
  if (call.more_keywords) {
    const Value more = Evaluate(*call.more_keywords, scope);
    if (!more.is_dict()) throw Failure("expected a dict after **");
    for (const auto& [name, value] : more.dict()->entries()) {
      if (!name.is_string()) throw Failure("expected a dict with strings as keys after **");
      arguments.keywords.emplace_back(name.bytes(), value);
    }
  }
  return arguments;
}

Value Interpreter::Call(const Value& callee, Arguments& arguments) {
  RequireDefined(callee);
  const DepthGuard guard;
  if (callee.object() == nullptr) {
    throw Failure(fmt::format("'{}' object is not callable", callee.type()));
  }
  return callee.object()->Call(*this, arguments);
}

Value Interpreter::EvaluateCall(const Expression& expression, const ScopePtr& scope) {
  const Value callee = Evaluate(*expression.parts[0], scope);
  Arguments arguments = EvaluateArguments(expression.call, scope);
  line_ = expression.line;
  return Call(callee, arguments);
}

bool Interpreter::EvaluateComparison(const Expression& expression, const ScopePtr& scope) {
  Value left = Evaluate(*expression.parts[0], scope);
  for (size_t i = 0; i < expression.comparisons.size(); ++i) {
    Value right = Evaluate(*expression.parts[i + 1], scope);
    line_ = expression.line;
    if (!Compare(expression.comparisons[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::EvaluateConcat(const Expression& expression, const ScopePtr& scope) {
  Text text;
  for (const ExpressionPtr& part : expression.parts) Write(Str(Evaluate(*part, scope)), text);
  return Value(std::move(text));
}

Value Interpreter::EvaluateFilters(const Expression* filters, Text text, const ScopePtr& scope) {
  Value value(std::move(text));
  std::vector<const Expression*> chain;
  for (; filters != nullptr; filters = filters->parts[0].get()) chain.push_back(filters);
  for (auto filter = chain.rbegin(); filter != chain.rend(); ++filter) {
    Arguments arguments = EvaluateArguments((*filter)->call, scope);
    value = Filter((*filter)->name, value, arguments);
  }
  return value;
}

Value Interpreter::Evaluate(const Expression& expression, const ScopePtr& scope) {
  const DepthGuard guard;
  SpendStep();
  line_ = expression.line;
  const std::vector<ExpressionPtr>& parts = expression.parts;
  switch (expression.kind) {
    case ExpressionKind::kLiteral:
      return expression.literal;
    case ExpressionKind::kName:
      return EvaluateName(expression.name, scope);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: {
      std::vector<Value> items;
      for (const ExpressionPtr& part : parts) items.push_back(Evaluate(*part, scope));
      return expression.kind == ExpressionKind::kList ? Value::List(std::move(items))
                                                      : Value::Tuple(std::move(items));
    }
    case ExpressionKind::kDict: {
      Entries entries;
      for (size_t i = 0; i < parts.size(); i += 2) {
        Value key = Evaluate(*parts[i], scope);
        entries.emplace_back(std::move(key), Evaluate(*parts[i + 1], scope));
      }
      return MakeDict(entries);
    }
    case ExpressionKind::kAttribute: {
      const Value object = Evaluate(*parts[0], scope);
      line_ = expression.line;
      return GetAttribute(object, expression.name);
    }
    case ExpressionKind::kItem: {
      const Value object = Evaluate(*parts[0], scope);
      const Value key = Evaluate(*parts[1], scope);
      line_ = expression.line;
      return GetItem(object, key);
    }
    case ExpressionKind::kSlice: {
      const Value object = Evaluate(*parts[0], scope);
      const Value begin = PartOr(parts[1], scope);
      const Value end = PartOr(parts[2], scope);
      return GetSlice(object, begin, end, PartOr(parts[3], scope));
    }
    case ExpressionKind::kCall:
      return EvaluateCall(expression, scope);
    case ExpressionKind::kFilter:
    case ExpressionKind::kTest: {
      const Value value = Evaluate(*parts[0], scope);
      Arguments arguments = EvaluateArguments(expression.call, scope);
      line_ = expression.line;
      if (expression.kind == ExpressionKind::kTest) {
        return Value(Test(expression.name, value, arguments));
      }
      return Filter(expression.name, value, arguments);
    }
    case ExpressionKind::kNot:
      return Value(!Truth(Evaluate(*parts[0], scope)));
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: {
      Value left = Evaluate(*parts[0], scope);
      const bool decided = Truth(left) == (expression.kind == ExpressionKind::kOr);
      return decided ? left : Evaluate(*parts[1], scope);
    }
    case ExpressionKind::kNegative:
      return Negated(Evaluate(*parts[0], scope));
    case ExpressionKind::kPositive:
      return Plus(Evaluate(*parts[0], scope));
    case ExpressionKind::kArithmetic: {
      const Value left = Evaluate(*parts[0], scope);
      const Value right = Evaluate(*parts[1], scope);
      line_ = expression.line;
      return Apply(expression.arithmetic, left, right);
    }
    case ExpressionKind::kConcat:
      return EvaluateConcat(expression, scope);
    case ExpressionKind::kCompare:
      return Value(EvaluateComparison(expression, scope));
    case ExpressionKind::kCondition:
      if (Truth(Evaluate(*parts[0], scope))) return Evaluate(*parts[1], scope);
      if (parts[2] != nullptr) return Evaluate(*parts[2], scope);
      return Value::Missing("the inline if-expression was false and has no else");
    case ExpressionKind::kNamespace:
      break;
  }
  throw Failure("an expression that cannot be evaluated");
}

}  // namespace trimtab::jinja
