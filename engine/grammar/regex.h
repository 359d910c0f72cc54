// Regular expressions as grammars.
#pragma once

#include <functional>
#include <string_view>

#include "engine/grammar/code_points.h"
#include "engine/grammar/grammar.h"

namespace trimtab {

struct RegexOptions {
  /// How one character of a class is written: in UTF-8, or as a JSON string has it.
  std::function<Grammar::Expr(const CodePoints&)> encode;
  /// True where a match anywhere in the text is enough, so that only '^' and '$' tie it to the
  /// text's ends; false where the whole text must match.
  bool anywhere = false;
};

/// The texts that `pattern` matches. Of the syntax that Python, ECMAScript and PCRE share: classes,
/// escapes, groups, alternatives, quantifiers, '^' and '$' at the ends of a whole alternative.
/// `\d`, `\w` and `\s` are those of ASCII; '.' is no line break. Throws InputError that names what
/// is refused: assertions, back references, flags.
Grammar::Expr RegexExpr(std::string_view pattern, const RegexOptions& options, Grammar& grammar);

}  // namespace trimtab
