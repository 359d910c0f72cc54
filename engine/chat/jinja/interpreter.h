// Interpreter: one rendering of a template.
#pragma once

#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/chat/jinja/budget.h"
#include "engine/chat/jinja/objects.h"
#include "engine/chat/jinja/syntax.h"
#include "engine/chat/jinja/value.h"

namespace trimtab::jinja {

/// raise_exception was called: the template refuses what it was given.
struct Raised : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Variables of a block, and where to look for others.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> parent) : outer(std::move(parent)) {}

  void Set(const std::string& name, Value value) { variables[name] = std::move(value); }

  std::unordered_map<std::string, Value> variables{};
  std::shared_ptr<Scope> outer;
};

using ScopePtr = std::shared_ptr<Scope>;

class Interpreter {
 public:
  Interpreter(const Entries& variables, std::time_t now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Renders a whole template. Throws Failure or Raised; then line() is where.
  Text Run(const Body& body);
  int line() const { return line_; }
  std::time_t now() const { return now_; }

  Value Evaluate(const Expression& expression, const ScopePtr& scope);
  Text TextOf(const Body& body, const ScopePtr& scope);

  Value Call(const Value& callee, Arguments& arguments);
  Value Filter(const std::string& name, const Value& value, Arguments& arguments);
  bool Test(const std::string& name, const Value& value, Arguments& arguments);

  /// A namespace that lives as long as this.
  std::shared_ptr<Namespace> NewNamespace();

 private:
  enum class Flow { kOn, kBreak, kContinue };

  Flow Execute(const Body& body, const ScopePtr& scope, Text& out);
  Flow Execute(const Statement& statement, const ScopePtr& scope, Text& out);
  Flow ExecuteIf(const Statement& statement, const ScopePtr& scope, Text& out);
  Flow ExecuteFor(const Statement& statement, const ScopePtr& scope, Text& out);
  Flow ExecuteWith(const Statement& statement, const ScopePtr& scope, Text& out);
  void ExecuteCall(const Statement& statement, const ScopePtr& scope, Text& out);
  void Assign(const Expression& target, Value value, const ScopePtr& scope);
  Value MakeMacro(const Statement& statement, std::string name, const ScopePtr& scope);

  Value EvaluateName(const std::string& name, const ScopePtr& scope) const;
  Value EvaluateCall(const Expression& expression, const ScopePtr& scope);
  bool EvaluateComparison(const Expression& expression, const ScopePtr& scope);
  Value EvaluateConcat(const Expression& expression, const ScopePtr& scope);
  /// A chain of filters over `text`, which is the value of the innermost.
  Value EvaluateFilters(const Expression* filters, Text text, const ScopePtr& scope);
  Arguments EvaluateArguments(const CallSyntax& call, const ScopePtr& scope);
  Value PartOr(const ExpressionPtr& part, const ScopePtr& scope);
  void Write(const Text& text, Text& out);

  std::time_t now_;
  int line_ = 1;
  ScopePtr globals_;
  // What can refer to itself through others, and is taken apart at the end.
  std::vector<ScopePtr> captured_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace trimtab::jinja
