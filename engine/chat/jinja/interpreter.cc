#include "engine/chat/jinja/interpreter.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/chat/jinja/print.h"

namespace trimtab::jinja {

Interpreter::Interpreter(const Entries& variables, std::time_t now)
    : now_(now), globals_(std::make_shared<Scope>(nullptr)) {
  for (const auto& [name, function] : GlobalFunctions()) globals_->Set(name, function);
  for (const auto& [name, value] : variables) globals_->Set(name.bytes(), value);
}

Interpreter::~Interpreter() {
  for (const ScopePtr& scope : captured_) scope->variables.clear();
  for (const auto& each : namespaces_) each->Clear();
}

std::shared_ptr<Namespace> Interpreter::NewNamespace() {
  SpendBytes(sizeof(Namespace));
  return namespaces_.emplace_back(std::make_shared<Namespace>());
}

Text Interpreter::Run(const Body& body) { return TextOf(body, std::make_shared<Scope>(globals_)); }

Text Interpreter::TextOf(const Body& body, const ScopePtr& scope) {
  Text out;
  Execute(body, scope, out);
  return out;
}

void Interpreter::Write(const Text& text, Text& out) {
  SpendBytes(text.size());
  out.Append(text);
}

Interpreter::Flow Interpreter::Execute(const Body& body, const ScopePtr& scope, Text& out) {
  for (const auto& statement : body) {
    const Flow flow = Execute(*statement, scope, out);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::Execute(const Statement& statement, const ScopePtr& scope,
                                       Text& out) {
  const DepthGuard guard;
  SpendStep();
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      SpendBytes(statement.name.size());
      out.Append(statement.name);
      break;
    case StatementKind::kOutput:
      for (const ExpressionPtr& each : statement.expressions) {
        Write(Str(Evaluate(*each, scope)), out);
      }
      break;
    case StatementKind::kIf:
      return ExecuteIf(statement, scope, out);
    case StatementKind::kFor:
      return ExecuteFor(statement, scope, out);
    case StatementKind::kWith:
      return ExecuteWith(statement, scope, out);
    case StatementKind::kSet:
      Assign(*statement.target, Evaluate(*statement.expressions[0], scope), scope);
      break;
    case StatementKind::kSetBlock: {
      Text text = TextOf(statement.bodies[0], std::make_shared<Scope>(scope));
      Assign(*statement.target,
             EvaluateFilters(statement.expressions[0].get(), std::move(text), scope), scope);
      break;
    }
    case StatementKind::kMacro:
      scope->Set(statement.name, MakeMacro(statement, statement.name, scope));
      break;
    case StatementKind::kCall:
      ExecuteCall(statement, scope, out);
      break;
    case StatementKind::kFilter: {
      Text text = TextOf(statement.bodies[0], std::make_shared<Scope>(scope));
      Write(Str(EvaluateFilters(statement.expressions[0].get(), std::move(text), scope)), out);
      break;
    }
    case StatementKind::kGeneration: {
      Text text = TextOf(statement.bodies[0], std::make_shared<Scope>(scope));
      text.Mark(kGenerated);
      Write(text, out);
      break;
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::ExecuteIf(const Statement& statement, const ScopePtr& scope,
                                         Text& out) {
  size_t branch = 0;
  while (branch < statement.expressions.size() &&
         !Truth(Evaluate(*statement.expressions[branch], scope))) {
    ++branch;
  }
  return branch < statement.bodies.size() ? Execute(statement.bodies[branch], scope, out)
                                          : Flow::kOn;
}

Interpreter::Flow Interpreter::ExecuteFor(const Statement& statement, const ScopePtr& scope,
                                          Text& out) {
  std::vector<Value> items = Items(Evaluate(*statement.expressions[0], scope));
  if (const ExpressionPtr& condition = statement.expressions[1]) {
    std::vector<Value> kept;
    for (Value& item : items) {
      const auto inner = std::make_shared<Scope>(scope);
      Assign(*statement.target, item, inner);
      if (Truth(Evaluate(*condition, inner))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    return Execute(statement.bodies[1], std::make_shared<Scope>(scope), out);
  }
  const auto loop = std::make_shared<Loop>(std::move(items));
  while (loop->Next()) {
    SpendStep();
    const auto inner = std::make_shared<Scope>(scope);
    inner->Set("loop", Value(std::shared_ptr<Object>(loop)));
    Assign(*statement.target, loop->item(), inner);
    if (Execute(statement.bodies[0], inner, out) == Flow::kBreak) break;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::ExecuteWith(const Statement& statement, const ScopePtr& scope,
                                           Text& out) {
  const auto inner = std::make_shared<Scope>(scope);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    Assign(*statement.targets[i], Evaluate(*statement.expressions[i], scope), inner);
  }
  return Execute(statement.bodies[0], inner, out);
}

Value Interpreter::MakeMacro(const Statement& statement, std::string name, const ScopePtr& scope) {
  captured_.push_back(scope);
  return Value(std::shared_ptr<Object>(std::make_shared<Macro>(statement, std::move(name), scope)));
}

void Interpreter::ExecuteCall(const Statement& statement, const ScopePtr& scope, Text& out) {
  const Expression& call = *statement.expressions[0];
  const Value callee = Evaluate(*call.parts[0], scope);
  Arguments arguments = EvaluateArguments(call.call, scope);
  arguments.keywords.emplace_back("caller", MakeMacro(statement, "caller", scope));
  Write(Str(Call(callee, arguments)), out);
}

void Interpreter::Assign(const Expression& target, Value value, const ScopePtr& scope) {
  if (target.kind == ExpressionKind::kName) {
    scope->Set(target.name, std::move(value));
    return;
  }
  if (target.kind == ExpressionKind::kNamespace) {
    const Value object = EvaluateName(target.name, scope);
    RequireDefined(object);
    auto* attributes = dynamic_cast<Namespace*>(object.object());
    if (attributes == nullptr) {
      throw Failure(
          fmt::format("cannot set an attribute of '{}', which is no namespace", target.name));
    }
    attributes->Set(target.literal.bytes(), std::move(value));
    return;
  }
  RequireDefined(value);
  std::vector<Value> items = Items(value);
  if (items.size() != target.parts.size()) {
    throw Failure(
        fmt::format("expected {} values to unpack, got {}", target.parts.size(), items.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    Assign(*target.parts[i], std::move(items[i]), scope);
  }
}

}  // namespace trimtab::jinja
