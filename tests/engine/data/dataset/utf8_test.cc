#include "engine/data/dataset/utf8.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

/// The offset of the fault in `text`, given in pieces of `size` bytes; -1 when it is UTF-8.
int64_t FaultOf(std::string_view text, size_t size) {
  Utf8Checker checker;
  for (size_t begin = 0; begin < text.size(); begin += size) {
    if (!checker.Add(text.substr(begin, size))) return checker.fault_offset();
  }
  return checker.Finish() ? -1 : checker.fault_offset();
}

std::string Encode(uint32_t code) {
  const auto tail = [](uint32_t bits) { return static_cast<char>(0x80 | (bits & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), tail(code)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), tail(code >> 6), tail(code)};
  return {static_cast<char>(0xF0 | code >> 18), tail(code >> 12), tail(code >> 6), tail(code)};
}

TEST(Utf8, TakesEveryCharacterButNulAndSurrogates) {
  for (uint32_t code = 0; code < 0x120000; ++code) {
    const bool is_text = code != 0 && (code < 0xD800 || code > 0xDFFF) && code <= 0x10FFFF;
    ASSERT_EQ(FaultOf("ab" + Encode(code) + "c", 64), is_text ? -1 : 2) << code;
  }
}

TEST(Utf8, RefusesWhatIsNoCharacterAtItsFirstByte) {
  for (const char* broken :
       {"\x80", "\xbf", "\xff", "\xfe", "\xf8\x88\x80\x80\x80",      // no first byte
        "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",  // overlong
        "\xed\xa0\x80", "\xed\xbf\xbf",                              // surrogates
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",                      // past U+10FFFF
        "\xc3(", "\xe2\x82(", "\xf0\x9f\x98(", "\xe2\xe2\x82\xac"}) {
    for (size_t size = 1; size < 5; ++size) {
      EXPECT_EQ(FaultOf(std::string("a\xc3\xa9") + broken + "z", size), 3) << broken;
    }
  }
}

TEST(Utf8, RefusesATruncatedCharacterAtTheEnd) {
  for (const char* cut : {"\xc3", "\xe2", "\xe2\x82", "\xf0\x9f\x98"}) {
    for (size_t size = 1; size < 5; ++size) {
      EXPECT_EQ(FaultOf(std::string("ab") + cut, size), 2) << cut;
    }
  }
}

TEST(Utf8, SaysWhatIsWrong) {
  const auto fault = [](std::string_view text) {
    Utf8Checker checker;
    EXPECT_FALSE(checker.Add(text) && checker.Finish());
    return checker.fault();
  };
  EXPECT_EQ(fault(std::string_view("\0", 1)), "a NUL byte");
  EXPECT_EQ(fault("\xff"), "invalid UTF-8 (0xff)");
  EXPECT_EQ(fault("\xc3("), "invalid UTF-8 (0x28 within a character)");
  EXPECT_EQ(fault("\xc3"), "a truncated UTF-8 character");
}

}  // namespace
}  // namespace trimtab
