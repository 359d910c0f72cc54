// UTF-8, checked strictly while it is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trimtab {

/// Finds the first byte of a text that cannot be part of it. The text comes in pieces of any size,
/// and a character may be split between them.
class Utf8Checker {
 public:
  /// Checks the next piece. False at the first fault; the checker is of no use after that.
  bool Add(std::string_view piece);
  /// The text ends here. False if it ends within a character.
  bool Finish();

  /// After a fault: the offset in bytes, from 0, of the NUL or of the character that is broken.
  int64_t fault_offset() const { return fault_offset_; }
  /// After a fault: "a NUL byte", "invalid UTF-8 (0xff)", "a truncated UTF-8 character".
  const std::string& fault() const { return fault_; }

 private:
  bool StartCharacter(unsigned char first);
  bool Fail(int64_t offset, std::string fault);

  int64_t offset_ = 0;     // of the next byte
  int64_t character_ = 0;  // offset of the character that `missing_` bytes still belong to
  int missing_ = 0;
  // What the next of the missing bytes may be: narrower than a continuation byte's range where the
  // character would otherwise be overlong, a surrogate or past U+10FFFF.
  unsigned char low_ = 0;
  unsigned char high_ = 0;
  int64_t fault_offset_ = -1;
  std::string fault_;
};

}  // namespace trimtab
