#include "engine/data/vocabulary/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "engine/base/error.h"

namespace trimtab {
namespace {

/// White_Space by its parts. PCRE2's own `\s` takes U+180E too, which Unicode 6.3 made a format
/// character.
constexpr std::string_view kSpaces = R"(\t-\r\x{85}\p{Z})";
/// What words are made of. PCRE2's own `\w` has all numbers, and of the connectors the underscore;
/// Oniguruma's has the numbers of Latin-1 that are no digits.
constexpr std::string_view kWordCharacters =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
/// Ends of lines: in PCRE2's own way `$` also matches before a line feed that ends the text, alone.
constexpr std::string_view kLineBegin = R"((?:\A|(?<=\n)(?!\z)))";
constexpr std::string_view kLineEnd = R"((?=\n|\z))";
/// Letters after a backslash that mean the same to both, inside a class and outside.
constexpr std::string_view kSameEscapes = "dDnrt";

bool IsHexadecimal(std::string_view digits) {
  return digits.size() == 4 && std::ranges::all_of(digits, [](char c) {
           return std::isxdigit(static_cast<unsigned char>(c)) != 0;
         });
}

/// The expression as PCRE2 has to read it.
class Translation {
 public:
  Translation(std::string_view expression, const std::string& where)
      : rest_(expression), where_(where) {
    while (!rest_.empty()) {
      if (rest_[0] == '\\') {
        TranslateEscape();
      } else if (depth_ > 0) {
        TranslateInClass();
      } else {
        if (rest_.starts_with("(?")) CheckGroup();
        if (rest_[0] == '^' || rest_[0] == '$') {
          text_ += rest_[0] == '^' ? kLineBegin : kLineEnd;
          rest_.remove_prefix(1);
          continue;
        }
        // A repetition of a repetition there, possessive here.
        if (rest_.starts_with("}+")) Refuse("'}+'");
        if (rest_[0] == '[') OpenClass();
        Take(1);
      }
    }
  }

  const std::string& text() const { return text_; }

 private:
  void Take(size_t count) {
    text_ += rest_.substr(0, count);
    rest_.remove_prefix(std::min(count, rest_.size()));
  }

  void OpenClass() {
    depth_ = 1;
    if (rest_.starts_with("[^")) Take(1);
  }

  void TranslateInClass() {
    if (rest_.starts_with("&&")) Refuse("an intersection of classes");
    if (rest_[0] == '[') {
      OpenInnerClass();
    } else if (rest_[0] == ']' && depth_ > 1) {
      CloseInnerClass();
    } else {
      if (rest_[0] == ']') depth_ = 0;
      Take(1);
    }
  }

  /// The outer class takes what the inner one has; PCRE2 knows no inner ones, so that its brackets
  /// are left out. What stands beside them must not become part of a range by that.
  void OpenInnerClass() {
    rest_.remove_prefix(1);
    for (const char* other : {"^", ":", "]", "-"}) {
      if (rest_.starts_with(other)) Refuse(fmt::format("'[{}' within a class", other));
    }
    if (text_.back() == '-') Refuse("'-[' within a class");
    ++depth_;
  }

  void CloseInnerClass() {
    rest_.remove_prefix(1);
    if (text_.back() == '-' || rest_.starts_with('-')) Refuse("'-' beside a class within a class");
    --depth_;
  }

  void CheckGroup() const {
    for (const char* known : {"(?i:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (rest_.starts_with(known)) return;
    }
    Refuse(fmt::format("a group '{}'", rest_.substr(0, 4)));
  }

  void TranslateEscape() {
    const char escaped = rest_.size() > 1 ? rest_[1] : '\0';
    if (escaped == 's' && depth_ > 0) {
      text_ += kSpaces;
      rest_.remove_prefix(2);
    } else if ((escaped == 's' || escaped == 'S') && depth_ == 0) {
      text_ += fmt::format("[{}{}]", escaped == 'S' ? "^" : "", kSpaces);
      rest_.remove_prefix(2);
    } else if (escaped == 'w' && depth_ > 0) {
      text_ += kWordCharacters;
      rest_.remove_prefix(2);
    } else if ((escaped == 'w' || escaped == 'W') && depth_ == 0) {
      text_ += fmt::format("[{}{}]", escaped == 'W' ? "^" : "", kWordCharacters);
      rest_.remove_prefix(2);
    } else if (escaped == 'u' && IsHexadecimal(rest_.substr(2, 4))) {
      text_ += fmt::format("\\x{{{}}}", rest_.substr(2, 4));
      rest_.remove_prefix(6);
    } else if (rest_.starts_with("\\x{") || rest_.starts_with("\\p{") ||
               rest_.starts_with("\\P{")) {
      Take(std::min(rest_.find('}'), rest_.size() - 1) + 1);
    } else if (std::isalnum(static_cast<unsigned char>(escaped)) == 0 ||
               kSameEscapes.find(escaped) != std::string_view::npos) {
      Take(2);
    } else {
      Refuse(fmt::format("'\\{}'{}", escaped, depth_ > 0 ? " in a class" : ""));
    }
  }

  [[noreturn]] void Refuse(const std::string& what) const {
    throw InputError(fmt::format(
        "{}: {}; expected a pattern of literals, classes, \\s, \\S, \\d, \\w, \\p{{..}}, "
        "(?i:..), (?:..), "
        "look-around and repetitions",
        where_, what));
  }

  std::string_view rest_;
  const std::string& where_;
  std::string text_;
  int depth_ = 0;  // of classes within each other
};

std::string MessageOf(int error) {
  std::array<PCRE2_UCHAR, 128> message{};
  pcre2_get_error_message(error, message.data(), message.size());
  return reinterpret_cast<const char*>(message.data());
}

PCRE2_SPTR Bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

std::string PatternOfText(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (static_cast<signed char>(c) > 0 && std::isalnum(static_cast<unsigned char>(c)) == 0) {
      escaped += '\\';
    }
    escaped += c;
  }
  return escaped;
}

struct Pattern::Compiled {
  pcre2_code* code = nullptr;
  std::string where;
  ~Compiled() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& expression, const std::string& where)
    : compiled_(std::make_unique<Compiled>()) {
  const Translation translation(expression, where);
  int error = 0;
  size_t offset = 0;
  compiled_->where = where;
  compiled_->code =
      pcre2_compile(Bytes(translation.text()), translation.text().size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &offset, nullptr);
  if (compiled_->code == nullptr) {
    throw InputError(fmt::format("{}: expected a regular expression; {}", where, MessageOf(error)));
  }
  // Where there is no compiler for this processor, the interpreter does it.
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;

void Pattern::Split(std::string_view text,
                    const std::function<void(std::string_view, bool)>& piece) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> found(
      pcre2_match_data_create_from_pattern(compiled_->code, nullptr), &pcre2_match_data_free);
  if (found == nullptr) throw std::bad_alloc();
  size_t done = 0;
  size_t from = 0;
  while (from < text.size()) {
    const int count = pcre2_match(compiled_->code, Bytes(text), text.size(), from, PCRE2_NOTEMPTY,
                                  found.get(), nullptr);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      throw InputError(fmt::format("{}: text too long or too intricate for this pattern ({})",
                                   compiled_->where, MessageOf(count)));
    }
    const size_t* span = pcre2_get_ovector_pointer(found.get());
    if (span[0] > done) piece(text.substr(done, span[0] - done), false);
    piece(text.substr(span[0], span[1] - span[0]), true);
    done = from = span[1];
  }
  if (done < text.size()) piece(text.substr(done), false);
}

}  // namespace trimtab
