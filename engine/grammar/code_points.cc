#include "engine/grammar/code_points.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/data/dataset/utf8.h"

namespace trimtab {
namespace {

constexpr uint32_t kLastPoint = 0x10FFFF;
constexpr uint32_t kFirstSurrogate = 0xD800;
constexpr uint32_t kLastSurrogate = 0xDFFF;
constexpr uint32_t kLastAscii = 0x7F;

/// Sequences of byte ranges for `first` to `last`, which have as many bytes.
void AddUtf8(const std::string& first, const std::string& last, Grammar& grammar,
             std::vector<Grammar::Expr>& branches) {
  const auto byte = [](char c) { return static_cast<int>(static_cast<unsigned char>(c)); };
  const size_t size = first.size();
  size_t same = 0;
  while (same < size && first[same] == last[same]) ++same;
  const auto all_from = [&](const std::string& text, size_t at, char value) {
    return std::all_of(text.begin() + static_cast<int64_t>(at), text.end(),
                       [value](char c) { return c == value; });
  };
  if (same + 1 >= size || (all_from(first, same + 1, '\x80') && all_from(last, same + 1, '\xBF'))) {
    std::vector<Grammar::Expr> bytes;
    for (size_t i = 0; i < size; ++i) {
      bytes.push_back(grammar.Set(ByteRange(byte(first[i]), byte(last[i]))));
    }
    branches.push_back(grammar.Sequence(std::move(bytes)));
    return;
  }
  // Where the ranges of later bytes are not whole, the range is cut at the first byte that differs.
  const auto filled = [&](const std::string& text, char value, int change) {
    std::string cut = text.substr(0, same + 1) + std::string(size - same - 1, value);
    cut[same] = static_cast<char>(byte(cut[same]) + change);
    return cut;
  };
  const bool low = !all_from(first, same + 1, '\x80');
  const bool high = !all_from(last, same + 1, '\xBF');
  if (low) AddUtf8(first, filled(first, '\xBF', 0), grammar, branches);
  const std::string middle_first = filled(first, '\x80', low ? 1 : 0);
  const std::string middle_last = filled(last, '\xBF', high ? -1 : 0);
  if (middle_first <= middle_last) AddUtf8(middle_first, middle_last, grammar, branches);
  if (high) AddUtf8(filled(last, '\x80', 0), last, grammar, branches);
}

Grammar::Expr BeyondAscii(const std::vector<CodePoints::Range>& ranges, Grammar& grammar) {
  constexpr CodePoints::Range kLengths[] = {{0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, kLastPoint}};
  std::vector<Grammar::Expr> branches;
  for (const CodePoints::Range& range : ranges) {
    for (const CodePoints::Range& length : kLengths) {
      const uint32_t first = std::max(range.first, length.first);
      const uint32_t last = std::min(range.last, length.last);
      if (first <= last) AddUtf8(Utf8Of(first), Utf8Of(last), grammar, branches);
    }
  }
  return grammar.Choice(std::move(branches));
}

}  // namespace

CodePoints::CodePoints(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  const auto add = [this](uint32_t first, uint32_t last) {
    if (first > last) return;
    if (!ranges_.empty() && first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, last);
    } else {
      ranges_.push_back({first, last});
    }
  };
  for (const Range& range : ranges) {
    add(range.first, std::min(range.last, kFirstSurrogate - 1));
    add(std::max(range.first, kLastSurrogate + 1), std::min(range.last, kLastPoint));
  }
}

CodePoints CodePoints::All() { return CodePoints({{0, kLastPoint}}); }

CodePoints CodePoints::Or(const CodePoints& other) const {
  std::vector<Range> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePoints(std::move(ranges));
}

CodePoints CodePoints::And(const CodePoints& other) const { return Not().Or(other.Not()).Not(); }

CodePoints CodePoints::Not() const {
  std::vector<Range> ranges;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) ranges.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastPoint) ranges.push_back({next, kLastPoint});
  return CodePoints(std::move(ranges));
}

Grammar::Expr Utf8Expr(const CodePoints& points, Grammar& grammar) {
  ByteSet ascii;
  for (const CodePoints::Range& range : points.ranges()) {
    if (range.first > kLastAscii) break;
    ascii |= ByteRange(static_cast<int>(range.first),
                       static_cast<int>(std::min(range.last, kLastAscii)));
  }
  const CodePoints all_beyond({{kLastAscii + 1, kLastPoint}});
  const CodePoints beyond = points.And(all_beyond);
  std::vector<Grammar::Expr> branches;
  if (ascii.any() || beyond.empty()) branches.push_back(grammar.Set(ascii));
  if (!beyond.empty()) {
    const auto make = [&] { return BeyondAscii(beyond.ranges(), grammar); };
    const bool all = beyond.ranges() == all_beyond.ranges();
    branches.push_back(all ? grammar.Named("beyond ASCII", make) : make());
  }
  return grammar.Choice(std::move(branches));
}

std::vector<uint32_t> CodePointsOf(std::string_view text) {
  Utf8Checker checker;
  // The checker takes NUL for a fault, which it is in no JSON string.
  std::string shown(text);
  std::replace(shown.begin(), shown.end(), '\0', ' ');
  if (!checker.Add(shown) || !checker.Finish()) {
    throw InputError(fmt::format("byte {}: {}", checker.fault_offset(), checker.fault()));
  }
  std::vector<uint32_t> points;
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const size_t bytes = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    uint32_t point = bytes == 1 ? first : first & (0xFFu >> (bytes + 1));
    for (size_t j = 1; j < bytes; ++j) {
      point = point << 6 | (static_cast<unsigned char>(text[i + j]) & 0x3Fu);
    }
    points.push_back(point);
    i += bytes;
  }
  return points;
}

std::string Utf8Of(uint32_t point) {
  const auto tail = [point](int shift) {
    return static_cast<char>(0x80 | (point >> shift & 0x3F));
  };
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) return {static_cast<char>(0xC0 | point >> 6), tail(0)};
  if (point < 0x10000) return {static_cast<char>(0xE0 | point >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | point >> 18), tail(12), tail(6), tail(0)};
}

}  // namespace trimtab
