#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>

#include "engine/chat/jinja/budget.h"
#include "engine/chat/jinja/parser.h"

namespace trimtab::jinja {
namespace {

std::string DescribeToken(const Token& token) {
  switch (token.kind) {
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return fmt::format("'{}'", token.text.substr(0, 40));
  }
}

}  // namespace

Body Parser::ParseTemplate() {
  Body body = ParseBody({});
  if (current().kind != TokenKind::kEnd) Unexpected("a tag");
  return body;
}

Body Parser::ParseBody(std::initializer_list<const char*> ends) {
  Body body;
  while (current().kind != TokenKind::kEnd) {
    auto statement = std::make_unique<Statement>();
    statement->line = current().line;
    if (current().kind == TokenKind::kData) {
      statement->kind = StatementKind::kText;
      statement->name = current().text;
      ++at_;
    } else if (current().kind == TokenKind::kVariableBegin) {
      ++at_;
      statement->kind = StatementKind::kOutput;
      statement->expressions.push_back(ParseTuple(true, false));
      Expect(TokenKind::kVariableEnd, "'}}'");
    } else {
      Expect(TokenKind::kBlockBegin, "a tag");
      if (std::ranges::any_of(ends, [this](const char* end) { return IsName(end); })) return body;
      statement = ParseStatement();
      Expect(TokenKind::kBlockEnd, "'%}'");
    }
    body.push_back(std::move(statement));
  }
  if (ends.size() > 0) {
    Fail(fmt::format("expected {{% {} %}} before the end of the template",
                     fmt::join(ends, " %} or {% ")));
  }
  return body;
}

Body Parser::ParseBlock(const char* end) {
  SkipOperator(":");
  Expect(TokenKind::kBlockEnd, "'%}'");
  Body body = ParseBody({end});
  ++at_;
  return body;
}

std::unique_ptr<Statement> Parser::ParseStatement() {
  if (depth_ >= kMaxDepth) Fail("nested too deeply");
  ++depth_;
  auto statement = std::make_unique<Statement>();
  statement->line = current().line;
  const Token tag = current();
  const std::string name = ExpectName();
  if (name == "if") {
    ParseIf(*statement);
  } else if (name == "for") {
    ParseFor(*statement);
  } else if (name == "set") {
    ParseSet(*statement);
  } else if (name == "with") {
    ParseWith(*statement);
  } else if (name == "macro") {
    ParseMacro(*statement);
  } else if (name == "call") {
    ParseCallBlock(*statement);
  } else if (name == "print") {
    statement->kind = StatementKind::kOutput;
    do {
      statement->expressions.push_back(ParseExpression());
    } while (SkipOperator(","));
  } else if (name == "filter") {
    statement->kind = StatementKind::kFilter;
    statement->expressions.push_back(ParseFilters(nullptr, true));
    statement->bodies.push_back(ParseBlock("endfilter"));
  } else if (name == "generation") {
    statement->kind = StatementKind::kGeneration;
    statement->bodies.push_back(ParseBlock("endgeneration"));
  } else if (name == "break" || name == "continue") {
    if (loops_ == 0) Fail(fmt::format("'{}' outside a loop", name));
    statement->kind = name == "break" ? StatementKind::kBreak : StatementKind::kContinue;
  } else {
    throw SyntaxFault{tag.line, fmt::format("unknown tag '{}'", name)};
  }
  --depth_;
  return statement;
}

void Parser::ParseIf(Statement& statement) {
  statement.kind = StatementKind::kIf;
  while (true) {
    statement.expressions.push_back(ParseTuple(false, false));
    SkipOperator(":");
    Expect(TokenKind::kBlockEnd, "'%}'");
    statement.bodies.push_back(ParseBody({"elif", "else", "endif"}));
    if (SkipName("elif")) continue;
    if (SkipName("else")) {
      statement.bodies.push_back(ParseBlock("endif"));
    } else {
      ++at_;
    }
    return;
  }
}

void Parser::ParseFor(Statement& statement) {
  statement.kind = StatementKind::kFor;
  statement.target = ParseTarget(false);
  if (!SkipName("in")) Unexpected("'in'");
  statement.expressions.push_back(ParseTuple(false, false));
  statement.expressions.push_back(SkipName("if") ? ParseExpression() : nullptr);
  if (IsName("recursive")) Fail("recursive loops are not read");
  SkipOperator(":");
  Expect(TokenKind::kBlockEnd, "'%}'");
  ++loops_;
  statement.bodies.push_back(ParseBody({"else", "endfor"}));
  --loops_;
  statement.bodies.emplace_back();
  if (SkipName("else")) {
    statement.bodies.back() = ParseBlock("endfor");
  } else {
    ++at_;
  }
}

void Parser::ParseSet(Statement& statement) {
  statement.kind = StatementKind::kSet;
  statement.target = ParseTarget(true);
  if (SkipOperator("=")) {
    statement.expressions.push_back(ParseTuple(true, false));
    return;
  }
  statement.kind = StatementKind::kSetBlock;
  statement.expressions.push_back(ParseFilters(nullptr, SkipOperator("|")));
  statement.bodies.push_back(ParseBlock("endset"));
}

void Parser::ParseWith(Statement& statement) {
  statement.kind = StatementKind::kWith;
  while (current().kind != TokenKind::kBlockEnd) {
    if (!statement.targets.empty()) ExpectOperator(",");
    statement.targets.push_back(ParsePrimary(false));
    if (statement.targets.back()->kind != ExpressionKind::kName) Fail("expected a name");
    ExpectOperator("=");
    statement.expressions.push_back(ParseExpression());
  }
  statement.bodies.push_back(ParseBlock("endwith"));
}

Signature Parser::ParseSignature() {
  Signature signature;
  ExpectOperator("(");
  while (!IsOperator(")")) {
    if (!signature.names.empty()) ExpectOperator(",");
    signature.names.push_back(ExpectName());
    if (SkipOperator("=")) {
      signature.defaults.push_back(ParseExpression());
    } else if (!signature.defaults.empty()) {
      Fail("expected a default, as the argument before it has one");
    }
  }
  ++at_;
  return signature;
}

void Parser::ParseMacro(Statement& statement) {
  statement.kind = StatementKind::kMacro;
  statement.name = ExpectName();
  statement.signature = ParseSignature();
  const int loops = std::exchange(loops_, 0);
  const size_t begin = at_;
  statement.bodies.push_back(ParseBlock("endmacro"));
  loops_ = loops;
  const auto uses = [&](std::string_view name) {
    return std::any_of(tokens_.begin() + static_cast<std::ptrdiff_t>(begin),
                       tokens_.begin() + static_cast<std::ptrdiff_t>(at_), [&](const Token& each) {
                         return each.kind == TokenKind::kName && each.text == name;
                       });
  };
  statement.signature.takes_more = uses("varargs");
  statement.signature.takes_more_keywords = uses("kwargs");
  statement.signature.takes_caller = uses("caller");
}

void Parser::ParseCallBlock(Statement& statement) {
  statement.kind = StatementKind::kCall;
  if (IsOperator("(")) statement.signature = ParseSignature();
  statement.expressions.push_back(ParseExpression());
  if (statement.expressions[0]->kind != ExpressionKind::kCall) Fail("expected a call");
  const int loops = std::exchange(loops_, 0);
  statement.bodies.push_back(ParseBlock("endcall"));
  loops_ = loops;
}

bool Parser::IsOperator(std::string_view text) const {
  return current().kind == TokenKind::kOperator && current().text == text;
}

bool Parser::IsName(std::string_view text) const {
  return current().kind == TokenKind::kName && current().text == text;
}

bool Parser::SkipOperator(std::string_view text) {
  const bool is = IsOperator(text);
  if (is) ++at_;
  return is;
}

bool Parser::SkipName(std::string_view text) {
  const bool is = IsName(text);
  if (is) ++at_;
  return is;
}

void Parser::Expect(TokenKind kind, const char* what) {
  if (current().kind != kind) Unexpected(what);
  ++at_;
}

void Parser::ExpectOperator(std::string_view text) {
  if (!SkipOperator(text)) Unexpected(fmt::format("'{}'", text));
}

std::string Parser::ExpectName() {
  if (current().kind != TokenKind::kName) Unexpected("a name");
  return tokens_[at_++].text;
}

void Parser::Fail(const std::string& message) const { throw SyntaxFault{current().line, message}; }

void Parser::Unexpected(const std::string& expected) const {
  Fail(fmt::format("expected {}, got {}", expected, DescribeToken(current())));
}

}  // namespace trimtab::jinja
