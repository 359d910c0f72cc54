#include "engine/grammar/regex.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace trimtab {
namespace {

using Expr = Grammar::Expr;

constexpr size_t kMostCharacters = 32'768;
constexpr int kMostGroups = 200;  // around each other

CodePoints Digits() { return CodePoints({{'0', '9'}}); }
CodePoints WordCharacters() { return CodePoints({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
CodePoints Spaces() { return CodePoints({{'\t', '\r'}, {' ', ' '}}); }
CodePoints NoLineBreak() {
  return CodePoints({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Not();
}

bool IsAlphanumeric(uint32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

class RegexParser {
 public:
  RegexParser(std::string_view pattern, const RegexOptions& options, Grammar& grammar)
      : points_(CodePointsOf(pattern)), options_(options), grammar_(grammar) {
    if (points_.size() > kMostCharacters) {
      throw InputError(
          fmt::format("{} characters; expected at most {}", points_.size(), kMostCharacters));
    }
  }

  Expr Parse() {
    std::vector<Expr> branches;
    do {
      const bool starts = Skip('^');
      std::vector<Expr> parts = Sequence(/*whole=*/true);
      const bool ends = Skip('$');
      if (!AtEnd() && Peek() != '|') Fail(Peek() == ')' ? "a ')' without a '('" : "a '$' within");
      if (options_.anywhere && !starts) parts.insert(parts.begin(), AnyText());
      if (options_.anywhere && !ends) parts.push_back(AnyText());
      branches.push_back(grammar_.Sequence(std::move(parts)));
    } while (Skip('|'));
    return grammar_.Choice(std::move(branches));
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    throw InputError(fmt::format("at character {}: {}", at_ + 1, what));
  }

  bool AtEnd() const { return at_ == points_.size(); }
  uint32_t Peek(size_t ahead = 0) const {
    return at_ + ahead < points_.size() ? points_[at_ + ahead] : 0;
  }
  bool Skip(char expected) {
    if (AtEnd() || Peek() != static_cast<uint32_t>(expected)) return false;
    ++at_;
    return true;
  }
  bool Follows(std::string_view text) const {
    for (size_t i = 0; i < text.size(); ++i) {
      if (at_ + i >= points_.size() || Peek(i) != static_cast<unsigned char>(text[i])) return false;
    }
    return true;
  }

  Expr AnyText() {
    return grammar_.Repeat(options_.encode(CodePoints::All()), 0, Grammar::kUnbounded);
  }

  /// Up to a '|', a ')' or the end; with `whole`, also up to a '$' at the end of the alternative.
  std::vector<Expr> Sequence(bool whole) {
    std::vector<Expr> parts;
    while (!AtEnd() && Peek() != '|' && Peek() != ')') {
      if (Peek() == '$' && whole && (at_ + 1 == points_.size() || Peek(1) == '|')) break;
      parts.push_back(Quantified(Atom()));
    }
    return parts;
  }

  Expr Alternatives() {
    std::vector<Expr> branches;
    do {
      branches.push_back(grammar_.Sequence(Sequence(/*whole=*/false)));
    } while (Skip('|'));
    return grammar_.Choice(std::move(branches));
  }

  Expr Atom() {
    switch (Peek()) {
      case '(':
        return Group();
      case '[':
        return options_.encode(Class());
      case '\\':
        return options_.encode(Escape(/*in_class=*/false));
      case '.':
        ++at_;
        return options_.encode(NoLineBreak());
      case '*':
      case '+':
      case '?':
        Fail("a quantifier with nothing before it");
      case '^':
        Fail(
            "'^' is supported only at the beginning of the expression or of an alternative that "
            "is in no group");
      case '$':
        Fail(
            "'$' is supported only at the end of the expression or of an alternative that is in "
            "no group");
      case '{':
        if (ParseBounds(/*take=*/false)) Fail("a quantifier with nothing before it");
        break;
      default:
        break;
    }
    return options_.encode(CodePoints::One(points_[at_++]));
  }

  Expr Group() {
    if (Follows("(?=") || Follows("(?!")) Fail("lookahead is not supported");
    if (Follows("(?<=") || Follows("(?<!")) Fail("lookbehind is not supported");
    if (Follows("(?:")) {
      at_ += 3;
    } else if (Follows("(?<") || Follows("(?P<")) {
      while (!AtEnd() && Peek() != '>') ++at_;
      if (!Skip('>')) Fail("a group's name without a '>'");
    } else if (Follows("(?")) {
      Fail(
          "flags, conditions and other groups that begin with '(?' are not supported, but for "
          "'(?:' and '(?<name>'");
    } else {
      ++at_;
    }
    if (++groups_ > kMostGroups) Fail(fmt::format("more than {} groups in groups", kMostGroups));
    const Expr inner = Alternatives();
    --groups_;
    if (!Skip(')')) Fail("a '(' without a ')'");
    return inner;
  }

  struct Bounds {
    int64_t min = 0;
    int64_t max = 0;
  };

  int64_t Number(size_t& at) const {
    int64_t value = 0;
    for (; at < points_.size() && points_[at] >= '0' && points_[at] <= '9'; ++at) {
      value =
          std::min<int64_t>(value * 10 + static_cast<int64_t>(points_[at] - '0'), 1'000'000'000);
    }
    return value;
  }

  /// "{m}", "{m,}" or "{m,n}" here; nothing if the brace is only a character.
  std::optional<Bounds> ParseBounds(bool take) {
    size_t at = at_ + 1;
    const auto is_digit = [&] {
      return at < points_.size() && points_[at] >= '0' && points_[at] <= '9';
    };
    const auto is = [&](char c) {
      return at < points_.size() && points_[at] == static_cast<uint32_t>(c);
    };
    if (is(',')) {
      ++at;
      if (is_digit()) Fail("'{,n}' means different things in different languages; write '{0,n}'");
      return std::nullopt;
    }
    if (!is_digit()) return std::nullopt;
    Bounds bounds;
    bounds.min = bounds.max = Number(at);
    if (is(',')) {
      ++at;
      bounds.max = is_digit() ? Number(at) : Grammar::kUnbounded;
    }
    if (!is('}')) return std::nullopt;
    if (bounds.max < bounds.min) Fail(fmt::format("'{{{},{}}}' is empty", bounds.min, bounds.max));
    if (take) at_ = at + 1;
    return bounds;
  }

  Expr Quantified(Expr atom) {
    std::optional<Bounds> bounds;
    if (Skip('*')) {
      bounds = Bounds{0, Grammar::kUnbounded};
    } else if (Skip('+')) {
      bounds = Bounds{1, Grammar::kUnbounded};
    } else if (Skip('?')) {
      bounds = Bounds{0, 1};
    } else if (!AtEnd() && Peek() == '{') {
      bounds = ParseBounds(/*take=*/true);
    }
    if (!bounds) return atom;
    Skip('?');  // whether it prefers few or many: the texts are the same
    if (Peek() == '+') Fail("possessive quantifiers are not supported");
    if (Peek() == '*' || Peek() == '?' || (Peek() == '{' && ParseBounds(/*take=*/false))) {
      Fail("a quantifier of a quantifier");
    }
    try {
      return grammar_.Repeat(atom, bounds->min, bounds->max);
    } catch (const InputError& error) {
      Fail(error.what());
    }
  }

  uint32_t Hex(size_t least, size_t most) {
    uint32_t value = 0;
    size_t count = 0;
    for (; count < most; ++count) {
      const uint32_t c = Peek();
      uint32_t digit = 16;
      if (c >= '0' && c <= '9') digit = c - '0';
      if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
      if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
      if (digit == 16) break;
      value = value * 16 + digit;
      ++at_;
    }
    if (count < least) Fail(fmt::format("expected {} hexadecimal digits", least));
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) Fail("no Unicode character");
    return value;
  }

  CodePoints Escape(bool in_class) {
    if (at_ + 1 == points_.size()) Fail("a '\\' with nothing behind it");
    const uint32_t c = Peek(1);
    const std::string name = "'\\" + Utf8Of(c) + "'";
    if (c >= '1' && c <= '9') Fail("back references are not supported");
    if (c == 'k' || c == 'g') Fail("back references are not supported");
    if (c == 'B' || (c == 'b' && !in_class)) Fail("word boundaries are not supported");
    if (c == 'p' || c == 'P') Fail("Unicode properties are not supported; list ranges instead");
    if (c == 'A' || c == 'Z' || c == 'z' || c == 'G') {
      Fail(name + " is not supported; the expression is that of a whole text");
    }
    at_ += 2;
    switch (c) {
      case 'd':
        return Digits();
      case 'D':
        return Digits().Not();
      case 'w':
        return WordCharacters();
      case 'W':
        return WordCharacters().Not();
      case 's':
        return Spaces();
      case 'S':
        return Spaces().Not();
      case 'b':
        return CodePoints::One('\b');
      case 't':
        return CodePoints::One('\t');
      case 'n':
        return CodePoints::One('\n');
      case 'r':
        return CodePoints::One('\r');
      case 'f':
        return CodePoints::One('\f');
      case 'v':
        return CodePoints::One('\v');
      case 'x':
        return CodePoints::One(Hex(2, 2));
      case 'u': {
        if (!Skip('{')) return CodePoints::One(Unit());
        const uint32_t value = Hex(1, 6);
        if (!Skip('}')) Fail("expected a '}'");
        return CodePoints::One(value);
      }
      case 'U':
        return CodePoints::One(Hex(8, 8));
      case '0':
        if (Peek() >= '0' && Peek() <= '9') Fail("octal escapes are not supported");
        return CodePoints::One(0);
      default:
        break;
    }
    if (IsAlphanumeric(c)) {
      at_ -= 2;
      Fail(name + " is not supported");
    }
    return CodePoints::One(c);
  }

  /// Four digits, or two surrogates in ECMAScript's way.
  uint32_t Unit() {
    const size_t begin = at_;
    const bool surrogate =
        (Peek() == 'd' || Peek() == 'D') && (Peek(1) == '8' || Peek(1) == '9' || Peek(1) == 'a' ||
                                             Peek(1) == 'A' || Peek(1) == 'b' || Peek(1) == 'B');
    if (!surrogate || Peek(4) != '\\' || Peek(5) != 'u') return Hex(4, 4);
    const auto four = [&](size_t at) {
      std::string digits;
      for (size_t i = 0; i < 4 && at + i < points_.size(); ++i) digits += Utf8Of(points_[at + i]);
      if (digits.size() != 4 ||
          digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
        Fail("expected 4 hexadecimal digits");
      }
      return static_cast<uint32_t>(std::stoul(digits, nullptr, 16));
    };
    const uint32_t high = four(begin);
    const uint32_t low = four(begin + 6);
    if (low < 0xDC00 || low > 0xDFFF) Fail("no Unicode character");
    at_ = begin + 10;
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  CodePoints Class() {
    ++at_;
    const bool negated = Skip('^');
    CodePoints points;
    if (!AtEnd() && Peek() == ']') Fail("an empty class");
    while (!Skip(']')) {
      if (AtEnd()) Fail("a '[' without a ']'");
      if (Follows("[:") || Follows("[.") || Follows("[=")) Fail("POSIX classes are not supported");
      const size_t begin = at_;
      const CodePoints first = ClassMember();
      if (Peek() != '-' || Peek(1) == ']' || at_ + 1 >= points_.size()) {
        points = points.Or(first);
        continue;
      }
      ++at_;
      const CodePoints last = ClassMember();
      const auto single = [](const CodePoints& set) {
        return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
      };
      if (!single(first) || !single(last) || first.ranges()[0].first > last.ranges()[0].first) {
        at_ = begin;
        Fail("a range in a class that is none");
      }
      points = points.Or(CodePoints({{first.ranges()[0].first, last.ranges()[0].first}}));
    }
    return negated ? points.Not() : points;
  }

  CodePoints ClassMember() {
    if (Peek() == '\\') return Escape(/*in_class=*/true);
    return CodePoints::One(points_[at_++]);
  }

  std::vector<uint32_t> points_;
  const RegexOptions& options_;
  Grammar& grammar_;
  size_t at_ = 0;
  int groups_ = 0;
};

}  // namespace

Expr RegexExpr(std::string_view pattern, const RegexOptions& options, Grammar& grammar) {
  return RegexParser(pattern, options, grammar).Parse();
}

}  // namespace trimtab
