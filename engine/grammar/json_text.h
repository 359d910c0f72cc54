// JSON (RFC 8259) as a grammar.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/code_points.h"
#include "engine/grammar/grammar.h"

namespace trimtab {

/// Expressions of JSON texts, each made once.
///
/// White space is bounded, or a model could write nothing else: between two tokens stands nothing,
/// a blank, or one or two line breaks with up to 64 blanks or tabs behind them.
class JsonText {
 public:
  using Expr = Grammar::Expr;

  explicit JsonText(Grammar& grammar) : grammar_(grammar) {}

  Expr Space();
  Expr Value();
  Expr Object();
  Expr Array();
  Expr Number();
  Expr Integer();
  Expr Boolean() { return grammar_.Strings({"true", "false"}); }
  Expr Null() { return grammar_.Bytes("null"); }

  /// A string with any escapes, of `min` to `max` characters.
  Expr String(int64_t min, int64_t max);
  /// A string whose text `content` describes, which must be made of Character.
  Expr Quoted(Expr content);
  /// One of `points` as it stands in a string: escaped only where it must be, and in one way.
  Expr Character(const CodePoints& points);
  /// Any text of such characters that is none of `texts`.
  Expr TextOtherThan(std::vector<std::string> texts);
  /// The value itself, with white space where it may be. Strings are written in one way.
  Expr Literal(const nlohmann::ordered_json& value);

  /// "{" and "}" or "[" and "]" around `inner`, which may be empty.
  Expr Enclosed(char open, Expr inner, char close);
  /// `key`, a string, with its value.
  Expr Member(Expr key, Expr value);
  /// A comma and `next`.
  Expr Next(Expr next);
  /// `item`s with commas between them, as many as that. `max` may be unbounded.
  Expr List(Expr item, int64_t min, int64_t max);

 private:
  Expr AnyCharacter();
  Expr OtherFrom(const std::vector<std::vector<uint32_t>>& sorted, size_t begin, size_t end,
                 size_t at);

  Grammar& grammar_;
};

/// The text of a string's content as Character writes it: without the quotes.
std::string EscapedContent(std::string_view text);

}  // namespace trimtab
