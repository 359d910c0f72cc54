// Pattern: a regular expression over Unicode text, as vocabularies use them to find words.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace trimtab {

/// The expression that matches `text` itself.
std::string PatternOfText(std::string_view text);

/// PCRE2 runs it, with the meaning that it has in Hugging Face's tokenizers (Oniguruma): `\s` is
/// Unicode's White_Space, `\d` its decimal digits, `^` and `$` are ends of lines. What the two
/// could read differently is refused. Safe to use from several threads.
class Pattern {
 public:
  /// Throws InputError "`where`: what is wrong and what was expected".
  Pattern(const std::string& expression, const std::string& where);
  ~Pattern();
  Pattern(Pattern&&) noexcept;

  /// Calls `piece` with every part of `text` in order: what matches, and what lies between two
  /// matches, without empty parts. Bytes that are not UTF-8 match nothing.
  /// Throws InputError when the text exceeds PCRE2's limits.
  void Split(std::string_view text,
             const std::function<void(std::string_view part, bool matches)>& piece) const;

 private:
  struct Compiled;

  std::unique_ptr<Compiled> compiled_;
};

}  // namespace trimtab
