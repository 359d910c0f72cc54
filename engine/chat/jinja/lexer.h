// A template's text as tokens, with the white space around blocks gone as Jinja takes it away.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trimtab::jinja {

enum class TokenKind {
  kData,  // text that is written as it is
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text{};  // of a string: what it says, of a number: its digits
  int line = 1;
};

/// A template that cannot be read: where, and what was expected.
struct SyntaxFault {
  int line = 1;
  std::string message;
};

/// With trim_blocks and lstrip_blocks, as chat templates are read; a line break at the end of the
/// text is left out. Throws SyntaxFault.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace trimtab::jinja
