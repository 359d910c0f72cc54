// The tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/value.h"

namespace trimtab::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

struct CallSyntax {
  std::vector<ExpressionPtr> positional{};
  std::vector<std::pair<std::string, ExpressionPtr>> keywords{};
  ExpressionPtr more_positional{};  // *expression
  ExpressionPtr more_keywords{};    // **expression
};

enum class ExpressionKind {
  kLiteral,     // literal
  kName,        // name
  kList,        // parts
  kTuple,       // parts
  kDict,        // parts: key, value, key, value ...
  kAttribute,   // parts[0].name
  kItem,        // parts[0][parts[1]]
  kSlice,       // parts[0][parts[1]:parts[2]:parts[3]]; null for what is left out
  kCall,        // parts[0](call)
  kFilter,      // parts[0] | name(call); null in a filter block: its text
  kTest,        // parts[0] is name(call)
  kNot,         // not parts[0]
  kAnd,         // parts[0] and parts[1]
  kOr,          // parts[0] or parts[1]
  kNegative,    // -parts[0]
  kPositive,    // +parts[0]
  kArithmetic,  // parts[0] arithmetic parts[1]
  kConcat,      // parts[0] ~ parts[1] ~ ...
  kCompare,     // parts[0] comparisons[0] parts[1] comparisons[1] parts[2] ...
  kCondition,   // parts[1] if parts[0] else parts[2]; null for what is left out
  kNamespace,   // name.literal, as the target of `set`
};

struct Expression {
  ExpressionKind kind;
  int line = 1;
  int depth = 1;  // of the tree below
  std::string name{};
  Value literal{};
  std::vector<ExpressionPtr> parts{};
  CallSyntax call{};
  Arithmetic arithmetic{};
  std::vector<Comparison> comparisons{};
};

/// The parameters of a macro or call block; the last `defaults.size()` have defaults.
struct Signature {
  std::vector<std::string> names{};
  std::vector<ExpressionPtr> defaults{};
  bool takes_more = false;           // the body reads `varargs`
  bool takes_more_keywords = false;  // the body reads `kwargs`
  bool takes_caller = false;         // the body reads `caller`
};

enum class StatementKind {
  kText,        // name
  kOutput,      // expressions
  kIf,          // expressions: conditions; bodies: one each, and perhaps that of `else`
  kFor,         // target in expressions[0] if expressions[1]; bodies: loop, else
  kSet,         // target = expressions[0]
  kSetBlock,    // target = bodies[0], through the filters expressions[0] unless null
  kWith,        // targets = expressions; bodies[0]
  kMacro,       // name(signature): bodies[0]
  kCall,        // expressions[0] is called with caller(signature): bodies[0]
  kFilter,      // bodies[0] through the filters expressions[0]
  kGeneration,  // bodies[0]
  kBreak,
  kContinue,
};

struct Statement {
  StatementKind kind;
  int line = 1;
  std::string name{};
  ExpressionPtr target{};
  std::vector<ExpressionPtr> targets{};
  std::vector<ExpressionPtr> expressions{};
  std::vector<Body> bodies{};
  Signature signature{};
};

}  // namespace trimtab::jinja
