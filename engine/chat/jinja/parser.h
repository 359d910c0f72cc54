// Tokens to the tree of a template.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat/jinja/lexer.h"
#include "engine/chat/jinja/syntax.h"

namespace trimtab::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  /// The whole template. Throws SyntaxFault.
  Body ParseTemplate();

 private:
  // Expressions.
  ExpressionPtr ParseExpression();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filters);
  ExpressionPtr ParsePrimary(bool namespaces);
  ExpressionPtr ParseNumber();
  ExpressionPtr ParsePostfix(ExpressionPtr value);
  ExpressionPtr ParseSubscript(ExpressionPtr value);
  ExpressionPtr ParseFilters(ExpressionPtr value, bool one_at_least);
  ExpressionPtr ParseTest(ExpressionPtr value);
  ExpressionPtr ParseCall(ExpressionPtr callee);
  void ParseCallArguments(Expression& parent);
  ExpressionPtr ParseArgument(Expression& parent);
  /// One expression, or several with commas as a tuple. With `conditions` each may be a condition.
  ExpressionPtr ParseTuple(bool conditions, bool may_be_empty);
  ExpressionPtr ParseTarget(bool namespaces);
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();

  // Statements.
  std::unique_ptr<Statement> ParseStatement();
  /// Statements up to a block whose name is one of `ends`, which is then next.
  Body ParseBody(std::initializer_list<const char*> ends);
  /// See ParseBody; from the end of the current block, and past the name of the last.
  Body ParseBlock(const char* end);
  void ParseIf(Statement& statement);
  void ParseFor(Statement& statement);
  void ParseSet(Statement& statement);
  void ParseWith(Statement& statement);
  void ParseMacro(Statement& statement);
  void ParseCallBlock(Statement& statement);
  Signature ParseSignature();

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool IsOperator(std::string_view text) const;
  bool IsName(std::string_view text) const;
  bool SkipOperator(std::string_view text);
  bool SkipName(std::string_view text);
  void Expect(TokenKind kind, const char* what);
  void ExpectOperator(std::string_view text);
  std::string ExpectName();
  bool EndsTuple() const;
  [[noreturn]] void Fail(const std::string& message) const;
  [[noreturn]] void Unexpected(const std::string& expected) const;

  ExpressionPtr Make(ExpressionKind kind) const;
  /// Adds a part and counts how deep the tree is. Throws SyntaxFault when it is too deep.
  void AddPart(Expression& parent, ExpressionPtr part) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // around here, within the macro
};

}  // namespace trimtab::jinja
