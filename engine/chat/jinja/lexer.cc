#include "engine/chat/jinja/lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "engine/chat/jinja/string_literal.h"
#include "engine/chat/jinja/unicode.h"

namespace trimtab::jinja {
namespace {

bool IsNameStart(uint32_t code) { return code == '_' || IsLetter(code); }
bool IsDigitByte(char c) { return c >= '0' && c <= '9'; }

/// Line breaks as "\n", and without the last one.
std::string Normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(Normalized(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) ReadData();
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  [[noreturn]] void Fail(const std::string& message) const { throw SyntaxFault{line_, message}; }

  std::string_view Rest() const { return std::string_view(source_).substr(at_); }

  void Advance(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes),
                                         '\n'));
    at_ += bytes;
    if (bytes > 0) line_starts_ = source_[at_ - 1] == '\n';
  }

  void SkipSpace() {
    size_t end = at_;
    while (end < source_.size()) {
      const Character character = CharacterAt(source_, end);
      if (!IsSpace(character.code)) break;
      end += character.bytes;
    }
    Advance(end - at_);
  }

  /// The text before a tag at `end`, cut as the tag's sign and lstrip_blocks say.
  std::string DataUntil(size_t end, char sign, bool strips_line) const {
    std::string_view data = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      size_t kept = 0;
      ForEachCharacter(data, [&](uint32_t code, size_t at) {
        if (!IsSpace(code)) kept = at + CharacterAt(data, at).bytes;
      });
      return std::string(data.substr(0, kept));
    }
    if (sign == '+' || !strips_line) return std::string(data);
    const size_t line = data.rfind('\n') + 1;  // 0 where there is none
    if (line == 0 && !line_starts_) return std::string(data);
    bool blank = true;
    ForEachCharacter(data.substr(line), [&](uint32_t code, size_t) { blank &= IsSpace(code); });
    return std::string(blank ? data.substr(0, line) : data);
  }

  void AddData(std::string data, size_t end) {
    if (!data.empty()) Add(TokenKind::kData, std::move(data));
    Advance(end - at_);
  }

  /// Text up to the next tag, and the tag.
  void ReadData() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        AddData(source_.substr(at_), source_.size());
        return;
      }
      if (source_[tag + 1] == '%' || source_[tag + 1] == '{' || source_[tag + 1] == '#') break;
    }
    const char kind = source_[tag + 1];
    const char next = tag + 2 < source_.size() ? source_[tag + 2] : 0;
    const char sign = next == '-' || (next == '+' && kind != '{') ? next : 0;
    AddData(DataUntil(tag, sign, kind != '{'), tag);
    const size_t begin_bytes = sign == 0 ? 2 : 3;
    if (kind == '#') {
      ReadComment(begin_bytes);
    } else if (kind == '%') {
      if (!ReadRaw(begin_bytes)) ReadTag(begin_bytes, TokenKind::kBlockBegin);
    } else {
      ReadTag(begin_bytes, TokenKind::kVariableBegin);
    }
  }

  /// Skips what follows the end of a block or comment: `sign` is that before the end.
  void SkipAfterBlock(char sign) {
    if (sign == '-') {
      SkipSpace();
    } else if (sign != '+' && Rest().starts_with('\n')) {
      Advance(1);
    }
  }

  void ReadComment(size_t begin_bytes) {
    const size_t end = source_.find("#}", at_ + begin_bytes);
    if (end == std::string::npos) Fail("expected '#}' to end the comment");
    const char sign = end > at_ + begin_bytes ? source_[end - 1] : 0;
    Advance(end + 2 - at_);
    SkipAfterBlock(sign);
  }

  /// Where `at`, after white space, says `word` and then, after white space, ends a block: the byte
  /// after that, and the sign before the end.
  std::optional<std::pair<size_t, char>> BlockOf(size_t at, std::string_view word) const {
    const auto skip = [&] {
      while (at < source_.size() && IsSpace(CharacterAt(source_, at).code)) {
        at += CharacterAt(source_, at).bytes;
      }
    };
    skip();
    if (!std::string_view(source_).substr(at).starts_with(word)) return std::nullopt;
    at += word.size();
    skip();
    char sign = 0;
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) sign = source_[at++];
    if (!std::string_view(source_).substr(at).starts_with("%}")) return std::nullopt;
    return std::pair(at + 2, sign);
  }

  /// {% raw %} up to {% endraw %}, if this is one.
  bool ReadRaw(size_t begin_bytes) {
    const auto begin = BlockOf(at_ + begin_bytes, "raw");
    if (!begin || begin->second == '+') return false;
    Advance(begin->first - at_);
    if (begin->second == '-') SkipSpace();
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const char next = tag + 2 < source_.size() ? source_[tag + 2] : 0;
      const char sign = next == '-' || next == '+' ? next : 0;
      const auto end = BlockOf(tag + (sign == 0 ? 2 : 3), "endraw");
      if (!end) continue;
      AddData(DataUntil(tag, sign, true), end->first);
      SkipAfterBlock(end->second);
      return true;
    }
    Fail("expected {% endraw %}");
  }

  void ReadTag(size_t begin_bytes, TokenKind kind) {
    const bool block = kind == TokenKind::kBlockBegin;
    Add(kind, "");
    Advance(begin_bytes);
    std::string open;  // brackets
    while (true) {
      SkipSpace();
      if (at_ >= source_.size()) {
        Fail(fmt::format("expected '{}'", block ? "%}" : "}}"));
      }
      if (open.empty() && EndsTag(block)) return;
      ReadToken(open);
    }
  }

  bool EndsTag(bool block) {
    const std::string_view rest = Rest();
    const bool signed_end = rest[0] == '-' || (block && rest[0] == '+');
    if (!rest.substr(signed_end ? 1 : 0).starts_with(block ? "%}" : "}}")) return false;
    const char sign = signed_end ? rest[0] : 0;
    Add(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
    Advance(signed_end ? 3 : 2);
    if (block) {
      SkipAfterBlock(sign);
    } else if (sign == '-') {
      SkipSpace();
    }
    return true;
  }

  void ReadToken(std::string& open) {
    const Character first = CharacterAt(source_, at_);
    if (IsDigitByte(source_[at_])) {
      ReadNumber();
    } else if (IsNameStart(first.code)) {
      size_t end = at_;
      while (end < source_.size() && IsWordCharacter(CharacterAt(source_, end).code)) {
        end += CharacterAt(source_, end).bytes;
      }
      Add(TokenKind::kName, source_.substr(at_, end - at_));
      Advance(end - at_);
    } else if (source_[at_] == '\'' || source_[at_] == '"') {
      ReadString();
    } else {
      ReadOperator(open);
    }
  }

  /// The end of digits and single underscores between them, from `at` on.
  size_t DigitsEnd(size_t at, bool (*is_digit)(char)) const {
    const auto digit_at = [&](size_t i) { return i < source_.size() && is_digit(source_[i]); };
    while (digit_at(at) || (at < source_.size() && source_[at] == '_' && digit_at(at + 1))) ++at;
    return at;
  }

  void ReadNumber() {
    const auto decimal = [](char c) { return IsDigitByte(c); };
    const auto any = [](char c) {
      return IsDigitByte(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    };
    const char base = Rest().size() > 2 && Rest()[0] == '0' ? Rest()[1] : '\0';
    bool real = false;
    size_t end = at_;
    if (std::string_view("xXoObB").find(base) != std::string_view::npos && base != '\0') {
      end = DigitsEnd(at_ + 2, any);
    } else {
      end = DigitsEnd(at_, decimal);
      const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
      if (!after_dot && end + 1 < source_.size() && source_[end] == '.' &&
          IsDigitByte(source_[end + 1])) {
        end = DigitsEnd(end + 1, decimal);
        real = true;
      }
      size_t exponent = end;
      if (!after_dot && exponent < source_.size() && (source_[exponent] | 0x20) == 'e') {
        ++exponent;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
          ++exponent;
        }
        if (exponent < source_.size() && IsDigitByte(source_[exponent])) {
          end = DigitsEnd(exponent, decimal);
          real = true;
        }
      }
    }
    std::string digits = source_.substr(at_, end - at_);
    std::erase(digits, '_');
    Add(real ? TokenKind::kFloat : TokenKind::kInteger, std::move(digits));
    Advance(end - at_);
  }

  void ReadString() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) Fail(fmt::format("expected {} to end the string", quote));
    std::string text;
    const std::string fault =
        Unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), text);
    if (!fault.empty()) Fail(fault);
    Add(TokenKind::kString, std::move(text));
    Advance(end + 1 - at_);
  }

  void ReadOperator(std::string& open) {
    constexpr std::array<std::string_view, 25> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (const std::string_view each : kOperators) {
      if (!Rest().starts_with(each)) continue;
      const char c = each[0];
      if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) Fail(fmt::format("unexpected '{}'", c));
        open.pop_back();
      }
      Add(TokenKind::kOperator, std::string(each));
      Advance(each.size());
      return;
    }
    const Character character = CharacterAt(source_, at_);
    Fail(fmt::format("unexpected character '{}'", Rest().substr(0, character.bytes)));
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // what was read last ended a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  if (!IsUtf8(source)) throw SyntaxFault{1, "expected UTF-8"};
  return Lexer(source).Run();
}

}  // namespace trimtab::jinja
