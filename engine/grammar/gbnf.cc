// Grammars as llama.cpp writes them (GBNF), which vLLM's EBNF resembles.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/grammar/code_points.h"
#include "engine/grammar/front_ends.h"

namespace trimtab {
namespace {

using Expr = Grammar::Expr;

constexpr size_t kMostGbnfCharacters = 262'144;
constexpr int kMostGbnfGroups = 200;  // around each other

class GbnfParser {
 public:
  GbnfParser(std::string_view text, Grammar& grammar)
      : points_(CodePointsOf(text)), grammar_(grammar) {
    if (points_.size() > kMostGbnfCharacters) {
      throw InputError(
          fmt::format("{} characters; expected at most {}", points_.size(), kMostGbnfCharacters));
    }
  }

  Expr Parse() {
    SkipSpace(/*lines=*/true);
    while (!AtEnd()) {
      ParseRule();
      SkipSpace(/*lines=*/true);
    }
    for (const auto& [name, rule] : rules_) {
      if (rule.defined) continue;
      at_ = rule.first_use;
      Fail(fmt::format("the rule '{}' is used and not defined", name));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) {
      throw InputError("no rule 'root'; expected rules of the form: root ::= \"a\" | \"b\"");
    }
    return grammar_.Call(root->second.rule);
  }

 private:
  struct NamedRule {
    Grammar::Rule rule = 0;
    size_t first_use = 0;
    bool defined = false;
  };

  [[noreturn]] void Fail(const std::string& what) const {
    const auto line =
        std::count(points_.begin(), points_.begin() + static_cast<int64_t>(at_), '\n');
    throw InputError(fmt::format("line {}: {}", line + 1, what));
  }

  bool AtEnd() const { return at_ >= points_.size(); }
  uint32_t Peek(size_t ahead = 0) const {
    return at_ + ahead < points_.size() ? points_[at_ + ahead] : 0;
  }
  bool Skip(char expected) {
    if (AtEnd() || Peek() != static_cast<uint32_t>(expected)) return false;
    ++at_;
    return true;
  }

  /// Blanks and comments; with `lines`, line breaks too.
  void SkipSpace(bool lines) {
    while (!AtEnd()) {
      if (Peek() == '#') {
        while (!AtEnd() && Peek() != '\n') ++at_;
      } else if (Peek() == ' ' || Peek() == '\t' || (lines && (Peek() == '\n' || Peek() == '\r'))) {
        ++at_;
      } else if (Peek() == '\r' && Peek(1) == '\n' && !lines) {
        return;
      } else {
        return;
      }
    }
  }

  static bool IsNameCharacter(uint32_t c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
           c == '_' || c == '.';
  }

  std::string ParseName() {
    std::string name;
    // '.' is in names of some dialects, but alone it is any character.
    while (!AtEnd() && IsNameCharacter(Peek()) && !(name.empty() && Peek() == '.')) {
      name += static_cast<char>(points_[at_++]);
    }
    if (name.empty()) Fail(fmt::format("expected the name of a rule, got '{}'", Shown()));
    return name;
  }

  std::string Shown() const { return AtEnd() ? "the end" : Utf8Of(Peek()); }

  NamedRule& RuleOf(const std::string& name) {
    const auto [found, added] = rules_.try_emplace(name);
    if (added) found->second = {.rule = grammar_.AddRule(), .first_use = at_};
    return found->second;
  }

  void ParseRule() {
    if (Peek() == '?' || Peek() == '%') {
      Fail(
          "this looks like a Lark grammar; expected llama.cpp's GBNF: name ::= \"text\" "
          "other-rule");
    }
    const std::string name = ParseName();
    SkipSpace(/*lines=*/false);
    if (Peek() == ':' && Peek(1) != ':') {
      Fail(
          "this looks like a Lark grammar; expected llama.cpp's GBNF: name ::= \"text\" "
          "other-rule");
    }
    for (const char c : std::string_view("::=")) {
      if (!Skip(c)) Fail(fmt::format("expected '::=' behind '{}', got '{}'", name, Shown()));
    }
    if (RuleOf(name).defined) Fail(fmt::format("the rule '{}' is defined twice", name));
    RuleOf(name).defined = true;
    SkipSpace(/*lines=*/true);
    const Expr body = Alternatives(/*nested=*/false);
    grammar_.SetBody(RuleOf(name).rule, body);
    if (!AtEnd() && Peek() != '\n' && Peek() != '\r') {
      Fail(fmt::format("expected the end of the rule '{}', got '{}'", name, Shown()));
    }
  }

  Expr Alternatives(bool nested) {
    std::vector<Expr> branches = {Sequence(nested)};
    while (Skip('|')) {
      SkipSpace(/*lines=*/true);
      branches.push_back(Sequence(nested));
    }
    return grammar_.Choice(std::move(branches));
  }

  /// Returns true if an alternative goes on in the next line, which begins with '|'.
  bool GoesOn() {
    const size_t begin = at_;
    SkipSpace(/*lines=*/true);
    if (Peek() == '|') return true;
    at_ = begin;
    return false;
  }

  Expr Sequence(bool nested) {
    std::vector<Expr> parts;
    while (true) {
      SkipSpace(/*lines=*/nested);
      if (AtEnd() || Peek() == '|' || Peek() == ')') break;
      if (Peek() == '\n' || Peek() == '\r') {
        GoesOn();
        break;
      }
      parts.push_back(Quantified(Atom()));
    }
    return grammar_.Sequence(std::move(parts));
  }

  Expr Atom() {
    if (Skip('"')) {
      std::string bytes;
      while (!Skip('"')) {
        if (AtEnd() || Peek() == '\n') Fail("a '\"' without another one in its line");
        bytes += Utf8Of(Character());
      }
      return grammar_.Bytes(bytes);
    }
    if (Skip('[')) return Utf8Expr(Class(), grammar_);
    if (Skip('(')) {
      if (++groups_ > kMostGbnfGroups) {
        Fail(fmt::format("more than {} groups in groups", kMostGbnfGroups));
      }
      const Expr inner = Alternatives(/*nested=*/true);
      --groups_;
      if (!Skip(')')) Fail("a '(' without a ')'");
      return inner;
    }
    if (Skip('.')) return Utf8Expr(CodePoints::All(), grammar_);
    if (Peek() == '<' || Peek() == '!')
      Fail("tokens ('<name>') are not supported; write their text");
    if (Peek() == '/') Fail("regular expressions ('/.../') are not supported; write rules");
    if (Peek() == '\'') Fail("texts stand in double quotes");
    if (!IsNameCharacter(Peek())) {
      Fail(fmt::format("expected a text, a class, a group or a rule, got '{}'", Shown()));
    }
    const std::string name = ParseName();
    return grammar_.Call(RuleOf(name).rule);
  }

  CodePoints Class() {
    const bool negated = Skip('^');
    std::vector<CodePoints::Range> ranges;
    while (!Skip(']')) {
      if (AtEnd() || Peek() == '\n') Fail("a '[' without a ']'");
      const uint32_t first = Character();
      uint32_t last = first;
      if (Peek() == '-' && Peek(1) != ']') {
        ++at_;
        if (AtEnd()) Fail("a '[' without a ']'");
        last = Character();
      }
      if (last < first) Fail("a range in a class that is none");
      ranges.push_back({first, last});
    }
    const CodePoints points(std::move(ranges));
    return negated ? points.Not() : points;
  }

  uint32_t Character() {
    const uint32_t c = points_[at_++];
    if (c != '\\') return c;
    if (AtEnd()) Fail("a '\\' with nothing behind it");
    const uint32_t escaped = points_[at_++];
    switch (escaped) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return Hex(2);
      case 'u':
        return Hex(4);
      case 'U':
        return Hex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '\'':
      case '/':
      case '.':
        return escaped;
      default:
        break;
    }
    --at_;
    Fail(fmt::format("the escape '\\{}' is not supported", Shown()));
  }

  uint32_t Hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const uint32_t c = Peek();
      uint32_t digit = 16;
      if (c >= '0' && c <= '9') digit = c - '0';
      if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
      if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
      if (digit == 16 || value > 0xFFFFFF)
        Fail(fmt::format("expected {} hexadecimal digits", digits));
      value = value * 16 + digit;
      ++at_;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) Fail("no Unicode character");
    return value;
  }

  int64_t Number() {
    if (Peek() < '0' || Peek() > '9') Fail(fmt::format("expected a number, got '{}'", Shown()));
    int64_t value = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      value = std::min<int64_t>(value * 10 + static_cast<int64_t>(Peek() - '0'), 1'000'000'000);
    }
    return value;
  }

  Expr Quantified(Expr atom) {
    while (true) {
      int64_t min = 0;
      int64_t max = Grammar::kUnbounded;
      if (Skip('?')) {
        max = 1;
      } else if (Skip('+')) {
        min = 1;
      } else if (Skip('{')) {
        SkipSpace(/*lines=*/false);
        if (Peek() != ',') min = Number();
        max = min;
        SkipSpace(/*lines=*/false);
        if (Skip(',')) {
          SkipSpace(/*lines=*/false);
          max = Peek() == '}' ? Grammar::kUnbounded : Number();
          SkipSpace(/*lines=*/false);
        }
        if (!Skip('}')) Fail(fmt::format("expected a '}}', got '{}'", Shown()));
        if (max < min) Fail(fmt::format("'{{{},{}}}' is empty", min, max));
      } else if (!Skip('*')) {
        return atom;
      }
      atom = grammar_.Repeat(atom, min, max);
    }
  }

  std::vector<uint32_t> points_;
  Grammar& grammar_;
  std::map<std::string, NamedRule> rules_;
  size_t at_ = 0;
  int groups_ = 0;
};

}  // namespace

Expr GbnfExpr(std::string_view text, Grammar& grammar) { return GbnfParser(text, grammar).Parse(); }

}  // namespace trimtab
