// CodePoints: sets of Unicode characters, and their bytes in UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.h"

namespace trimtab {

/// Never has surrogates, which no text has.
class CodePoints {
 public:
  struct Range {
    uint32_t first = 0;
    uint32_t last = 0;
    bool operator==(const Range&) const = default;
  };

  CodePoints() = default;
  explicit CodePoints(std::vector<Range> ranges);
  static CodePoints All();
  static CodePoints One(uint32_t point) { return CodePoints({{point, point}}); }

  CodePoints Or(const CodePoints& other) const;
  CodePoints And(const CodePoints& other) const;
  CodePoints Not() const;

  bool empty() const { return ranges_.empty(); }
  /// Sorted, with gaps between them.
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

/// One of `points` in UTF-8.
Grammar::Expr Utf8Expr(const CodePoints& points, Grammar& grammar);

/// The characters of `text`. Throws InputError where it is not UTF-8.
std::vector<uint32_t> CodePointsOf(std::string_view text);

/// `point` in UTF-8.
std::string Utf8Of(uint32_t point);

}  // namespace trimtab
