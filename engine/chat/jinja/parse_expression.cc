#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "engine/chat/jinja/budget.h"
#include "engine/chat/jinja/parser.h"

namespace trimtab::jinja {
namespace {

/// Counts how deep the parser calls itself.
class Nesting {
 public:
  Nesting(int& depth, int line) : depth_(depth) {
    if (depth >= kMaxDepth) throw SyntaxFault{line, "nested too deeply"};
    ++depth_;
  }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int& depth_;
};

}  // namespace

ExpressionPtr Parser::Make(ExpressionKind kind) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = current().line;
  return made;
}

void Parser::AddPart(Expression& parent, ExpressionPtr part) const {
  if (part != nullptr) parent.depth = std::max(parent.depth, part->depth + 1);
  if (parent.depth > kMaxDepth) Fail("nested too deeply");
  parent.parts.push_back(std::move(part));
}

ExpressionPtr Parser::ParseExpression() {
  const Nesting nesting(depth_, current().line);
  ExpressionPtr value = ParseOr();
  while (SkipName("if")) {
    ExpressionPtr condition = Make(ExpressionKind::kCondition);
    AddPart(*condition, ParseOr());
    AddPart(*condition, std::move(value));
    AddPart(*condition, SkipName("else") ? ParseExpression() : nullptr);
    value = std::move(condition);
  }
  return value;
}

ExpressionPtr Parser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  while (SkipName("or")) {
    ExpressionPtr both = Make(ExpressionKind::kOr);
    AddPart(*both, std::move(left));
    AddPart(*both, ParseAnd());
    left = std::move(both);
  }
  return left;
}

ExpressionPtr Parser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  while (SkipName("and")) {
    ExpressionPtr both = Make(ExpressionKind::kAnd);
    AddPart(*both, std::move(left));
    AddPart(*both, ParseNot());
    left = std::move(both);
  }
  return left;
}

ExpressionPtr Parser::ParseNot() {
  const Nesting nesting(depth_, current().line);
  if (!IsName("not")) return ParseCompare();
  ExpressionPtr negation = Make(ExpressionKind::kNot);
  ++at_;
  AddPart(*negation, ParseNot());
  return negation;
}

ExpressionPtr Parser::ParseCompare() {
  constexpr std::pair<const char*, Comparison> kSigns[] = {
      {"==", Comparison::kEqual}, {"!=", Comparison::kNotEqual},     {"<=", Comparison::kLessEqual},
      {"<", Comparison::kLess},   {">=", Comparison::kGreaterEqual}, {">", Comparison::kGreater}};
  ExpressionPtr first = ParseSum();
  ExpressionPtr chain;
  while (true) {
    std::optional<Comparison> comparison;
    for (const auto& [sign, each] : kSigns) {
      if (!comparison && SkipOperator(sign)) comparison = each;
    }
    if (!comparison && SkipName("in")) comparison = Comparison::kIn;
    if (!comparison && IsName("not") && next().kind == TokenKind::kName && next().text == "in") {
      at_ += 2;
      comparison = Comparison::kNotIn;
    }
    if (!comparison) return chain ? std::move(chain) : std::move(first);
    if (!chain) {
      chain = Make(ExpressionKind::kCompare);
      AddPart(*chain, std::move(first));
    }
    chain->comparisons.push_back(*comparison);
    AddPart(*chain, ParseSum());
  }
}

ExpressionPtr Parser::ParseSum() {
  ExpressionPtr left = ParseConcat();
  while (IsOperator("+") || IsOperator("-")) {
    ExpressionPtr both = Make(ExpressionKind::kArithmetic);
    both->arithmetic = IsOperator("+") ? Arithmetic::kAdd : Arithmetic::kSubtract;
    ++at_;
    AddPart(*both, std::move(left));
    AddPart(*both, ParseConcat());
    left = std::move(both);
  }
  return left;
}

ExpressionPtr Parser::ParseConcat() {
  ExpressionPtr first = ParseProduct();
  if (!IsOperator("~")) return first;
  ExpressionPtr all = Make(ExpressionKind::kConcat);
  AddPart(*all, std::move(first));
  while (SkipOperator("~")) AddPart(*all, ParseProduct());
  return all;
}

ExpressionPtr Parser::ParseProduct() {
  constexpr std::pair<const char*, Arithmetic> kSigns[] = {{"*", Arithmetic::kMultiply},
                                                           {"/", Arithmetic::kDivide},
                                                           {"//", Arithmetic::kFloorDivide},
                                                           {"%", Arithmetic::kModulo}};
  ExpressionPtr left = ParsePower();
  while (true) {
    const auto* found =
        std::ranges::find_if(kSigns, [this](const auto& each) { return IsOperator(each.first); });
    if (found == std::end(kSigns)) return left;
    ExpressionPtr both = Make(ExpressionKind::kArithmetic);
    both->arithmetic = found->second;
    ++at_;
    AddPart(*both, std::move(left));
    AddPart(*both, ParsePower());
    left = std::move(both);
  }
}

ExpressionPtr Parser::ParsePower() {
  ExpressionPtr left = ParseUnary(true);
  while (SkipOperator("**")) {
    ExpressionPtr both = Make(ExpressionKind::kArithmetic);
    both->arithmetic = Arithmetic::kPower;
    AddPart(*both, std::move(left));
    AddPart(*both, ParseUnary(true));
    left = std::move(both);
  }
  return left;
}

ExpressionPtr Parser::ParseUnary(bool with_filters) {
  const Nesting nesting(depth_, current().line);
  ExpressionPtr value;
  if (IsOperator("-") || IsOperator("+")) {
    value = Make(IsOperator("-") ? ExpressionKind::kNegative : ExpressionKind::kPositive);
    ++at_;
    AddPart(*value, ParseUnary(false));
  } else {
    value = ParsePrimary(false);
  }
  value = ParsePostfix(std::move(value));
  return with_filters ? ParseFilters(std::move(value), false) : std::move(value);
}

ExpressionPtr Parser::ParseNumber() {
  ExpressionPtr number = Make(ExpressionKind::kLiteral);
  std::string_view digits = current().text;
  const char* end = digits.data() + digits.size();
  if (current().kind == TokenKind::kFloat) {
    double value = 0;
    if (std::from_chars(digits.data(), end, value).ec != std::errc()) Fail("a number too large");
    number->literal = value;
  } else {
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0' && digits[1] > '9') {
      base = (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
      digits.remove_prefix(2);
    } else if (digits.size() > 1 && digits[0] == '0' &&
               digits.find_first_not_of('0') != std::string_view::npos) {
      Fail(fmt::format("'{}' is no number", digits));
    }
    int64_t value = 0;
    const auto [last, error] = std::from_chars(digits.data(), end, value, base);
    if (error != std::errc() || last != end)
      Fail(fmt::format("'{}' is no number of 64 bits", digits));
    number->literal = value;
  }
  ++at_;
  return number;
}

ExpressionPtr Parser::ParsePrimary(bool namespaces) {
  const Nesting nesting(depth_, current().line);
  const Token& token = current();
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return ParseNumber();
  if (token.kind == TokenKind::kString) {
    ExpressionPtr string = Make(ExpressionKind::kLiteral);
    std::string text;
    for (; current().kind == TokenKind::kString; ++at_) text += current().text;
    string->literal = Value(std::move(text));
    return string;
  }
  if (token.kind == TokenKind::kName) {
    ExpressionPtr name = Make(ExpressionKind::kName);
    name->name = token.text;
    ++at_;
    const bool is_true = name->name == "true" || name->name == "True";
    if (is_true || name->name == "false" || name->name == "False") {
      name->kind = ExpressionKind::kLiteral;
      name->literal = Value(is_true);
    } else if (name->name == "none" || name->name == "None") {
      name->kind = ExpressionKind::kLiteral;
    } else if (namespaces && SkipOperator(".")) {
      name->kind = ExpressionKind::kNamespace;
      name->literal = Value(ExpectName());
    }
    return name;
  }
  if (SkipOperator("(")) {
    ExpressionPtr inner = ParseTuple(true, true);
    ExpectOperator(")");
    return inner;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDict();
  Unexpected("an expression");
}

ExpressionPtr Parser::ParseList() {
  ExpressionPtr list = Make(ExpressionKind::kList);
  ExpectOperator("[");
  while (!IsOperator("]")) {
    if (!list->parts.empty()) ExpectOperator(",");
    if (IsOperator("]")) break;
    AddPart(*list, ParseExpression());
  }
  ++at_;
  return list;
}

ExpressionPtr Parser::ParseDict() {
  ExpressionPtr dict = Make(ExpressionKind::kDict);
  ExpectOperator("{");
  while (!IsOperator("}")) {
    if (!dict->parts.empty()) ExpectOperator(",");
    if (IsOperator("}")) break;
    AddPart(*dict, ParseExpression());
    ExpectOperator(":");
    AddPart(*dict, ParseExpression());
  }
  ++at_;
  return dict;
}

bool Parser::EndsTuple() const {
  return current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd ||
         IsOperator(")") || IsName("in");
}

ExpressionPtr Parser::ParseTuple(bool conditions, bool may_be_empty) {
  ExpressionPtr tuple = Make(ExpressionKind::kTuple);
  bool has_comma = false;
  while (!EndsTuple()) {
    AddPart(*tuple, conditions ? ParseExpression() : ParseOr());
    if (!SkipOperator(",")) break;
    has_comma = true;
  }
  if (!has_comma && !tuple->parts.empty()) return std::move(tuple->parts[0]);
  if (tuple->parts.empty() && !may_be_empty) Unexpected("an expression");
  return tuple;
}

ExpressionPtr Parser::ParseTarget(bool namespaces) {
  ExpressionPtr tuple = Make(ExpressionKind::kTuple);
  bool has_comma = false;
  while (!EndsTuple()) {
    ExpressionPtr target = ParsePrimary(namespaces);
    const bool assignable = target->kind == ExpressionKind::kName ||
                            target->kind == ExpressionKind::kNamespace ||
                            target->kind == ExpressionKind::kTuple;
    if (!assignable) Fail("expected a name to assign to");
    AddPart(*tuple, std::move(target));
    if (!SkipOperator(",")) break;
    has_comma = true;
  }
  if (tuple->parts.empty()) Unexpected("a name to assign to");
  return has_comma ? std::move(tuple) : std::move(tuple->parts[0]);
}

ExpressionPtr Parser::ParsePostfix(ExpressionPtr value) {
  while (true) {
    if (IsOperator(".") || IsOperator("[")) {
      value = ParseSubscript(std::move(value));
    } else if (IsOperator("(")) {
      value = ParseCall(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr Parser::ParseSubscript(ExpressionPtr value) {
  ExpressionPtr item = Make(ExpressionKind::kItem);
  AddPart(*item, std::move(value));
  if (SkipOperator(".")) {
    if (current().kind == TokenKind::kName) {
      item->kind = ExpressionKind::kAttribute;
      item->name = ExpectName();
    } else if (current().kind == TokenKind::kInteger) {
      AddPart(*item, ParseNumber());
    } else {
      Unexpected("a name or a number");
    }
    return item;
  }
  ExpectOperator("[");
  const auto ends = [this] { return IsOperator("]") || IsOperator(":"); };
  ExpressionPtr begin = ends() ? nullptr : ParseTuple(true, false);
  if (begin == nullptr && IsOperator("]")) Unexpected("an expression");
  AddPart(*item, std::move(begin));
  if (IsOperator(":")) {
    item->kind = ExpressionKind::kSlice;
    for (int i = 0; i < 2; ++i) {
      AddPart(*item, SkipOperator(":") && !ends() ? ParseExpression() : nullptr);
    }
  }
  ExpectOperator("]");
  return item;
}

ExpressionPtr Parser::ParseCall(ExpressionPtr callee) {
  ExpressionPtr call = Make(ExpressionKind::kCall);
  AddPart(*call, std::move(callee));
  ParseCallArguments(*call);
  return call;
}

ExpressionPtr Parser::ParseArgument(Expression& parent) {
  ExpressionPtr argument = ParseExpression();
  parent.depth = std::max(parent.depth, argument->depth + 1);
  if (parent.depth > kMaxDepth) Fail("nested too deeply");
  return argument;
}

void Parser::ParseCallArguments(Expression& parent) {
  CallSyntax& call = parent.call;
  ExpectOperator("(");
  for (bool first = true; !IsOperator(")"); first = false) {
    if (!first) ExpectOperator(",");
    if (IsOperator(")")) break;
    const bool named = current().kind == TokenKind::kName && next().kind == TokenKind::kOperator &&
                       next().text == "=";
    if (call.more_keywords) Fail("expected nothing after **");
    if (SkipOperator("**")) {
      call.more_keywords = ParseArgument(parent);
    } else if (SkipOperator("*")) {
      if (call.more_positional) Fail("expected one * in a call");
      call.more_positional = ParseArgument(parent);
    } else if (named) {
      std::string name = ExpectName();
      ++at_;
      call.keywords.emplace_back(std::move(name), ParseArgument(parent));
    } else {
      if (!call.keywords.empty() || call.more_positional) {
        Fail("expected arguments by position before others");
      }
      call.positional.push_back(ParseArgument(parent));
    }
  }
  ++at_;
}

ExpressionPtr Parser::ParseFilters(ExpressionPtr value, bool one_at_least) {
  while (true) {
    if (one_at_least || SkipOperator("|")) {
      one_at_least = false;
      ExpressionPtr filter = Make(ExpressionKind::kFilter);
      filter->name = ExpectName();
      AddPart(*filter, std::move(value));
      if (IsOperator("(")) ParseCallArguments(*filter);
      value = std::move(filter);
    } else if (value != nullptr && IsName("is")) {
      value = ParseTest(std::move(value));
    } else if (value != nullptr && IsOperator("(")) {
      value = ParseCall(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr Parser::ParseTest(ExpressionPtr value) {
  ExpressionPtr test = Make(ExpressionKind::kTest);
  ++at_;
  const bool negated = SkipName("not");
  test->name = ExpectName();
  AddPart(*test, std::move(value));
  const TokenKind kind = current().kind;
  const bool has_value = kind == TokenKind::kName || kind == TokenKind::kString ||
                         kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
                         IsOperator("[") || IsOperator("{");
  if (IsOperator("(")) {
    ParseCallArguments(*test);
  } else if (has_value && !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) Fail("expected one test after 'is'");
    test->call.positional.push_back(ParsePostfix(ParsePrimary(false)));
  }
  if (!negated) return test;
  ExpressionPtr negation = Make(ExpressionKind::kNot);
  AddPart(*negation, std::move(test));
  return negation;
}

}  // namespace trimtab::jinja
