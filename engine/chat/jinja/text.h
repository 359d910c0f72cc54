// Text: a string whose parts are marked by where they come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab::jinja {

/// What a part of a text is; a set of bits.
using Marks = uint8_t;
inline constexpr Marks kPlain = 0;      // the template wrote it
inline constexpr Marks kInput = 1;      // it came with the request: it names no special token
inline constexpr Marks kGenerated = 2;  // it stands in a `generation` block

/// UTF-8 with marks for each byte. Marks follow the bytes through every operation.
class Text {
 public:
  /// The bytes from the previous run's end to `end` have `marks`.
  struct Run {
    size_t end = 0;
    Marks marks = kPlain;

    bool operator==(const Run&) const = default;
  };

  Text() = default;
  explicit Text(std::string bytes, Marks marks = kPlain);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  /// Covers all bytes; neighbours differ in marks.
  const std::vector<Run>& runs() const { return runs_; }
  Marks MarksAt(size_t position) const;

  Text& Append(const Text& other);
  Text& Append(std::string_view bytes, Marks marks = kPlain);
  /// Appends bytes `begin` to `end` of `other`.
  Text& Append(const Text& other, size_t begin, size_t end);

  /// Returns bytes `begin` to `end`.
  Text Slice(size_t begin, size_t end) const;
  /// Adds `marks` to every byte.
  void Mark(Marks marks);

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace trimtab::jinja
