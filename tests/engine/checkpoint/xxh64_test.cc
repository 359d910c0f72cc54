#include "engine/checkpoint/xxh64.h"

#include <gtest/gtest.h>

#include <string>

namespace trimtab {
namespace {

std::string HashOf(const std::string& text) { return Xxh64Hex(std::as_bytes(std::span(text))); }

// Values of `xxhsum -H64`.
TEST(Xxh64, AgreesWithTheReference) {
  EXPECT_EQ(HashOf(""), "ef46db3751d8e999");
  EXPECT_EQ(HashOf("a"), "d24ec4f1a98c6e5b");
  EXPECT_EQ(HashOf("abc"), "44bc2cf5ad770999");
  EXPECT_EQ(HashOf("The quick brown fox jumps over the lazy dog"), "0b242d361fda71bc");
}

TEST(Xxh64, SeesEveryBitOfEveryLength) {
  for (const size_t length : {1, 3, 4, 7, 8, 12, 31, 32, 33, 63, 64, 100}) {
    std::string text(length, 'x');
    const std::string before = HashOf(text);
    for (size_t i = 0; i < length; ++i) {
      text[i] ^= 0x40;
      EXPECT_NE(HashOf(text), before) << "length " << length << " byte " << i;
      text[i] ^= 0x40;
    }
  }
}

}  // namespace
}  // namespace trimtab
