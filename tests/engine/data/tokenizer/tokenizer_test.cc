#include "engine/data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace trimtab {
namespace {

TEST(ByteTokenizer, RoundTripsEveryByte) {
  const auto tokenizer = MakeByteTokenizer();
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  std::vector<int32_t> tokens;
  tokenizer->Encode(text, tokens);
  ASSERT_EQ(tokens.size(), 256u);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(tokens[static_cast<size_t>(byte)], byte);
  EXPECT_EQ(tokenizer->Decode(tokens), text);
}

TEST(ByteTokenizer, AppendsAndSkipsTheEndOfDocument) {
  const auto tokenizer = MakeByteTokenizer();
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->eod_id(), 256);
  EXPECT_EQ(tokenizer->name(), "byte");
  std::vector<int32_t> tokens;
  tokenizer->Encode("ab", tokens);
  tokens.push_back(tokenizer->eod_id());
  tokenizer->Encode("c", tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{'a', 'b', 256, 'c'}));
  EXPECT_EQ(tokenizer->Decode(tokens), "abc");
}

TEST(ByteTokenizer, RefusesIdsOutsideItsVocabulary) {
  const auto tokenizer = MakeByteTokenizer();
  for (const int32_t bad : {-1, 257, 1 << 30}) {
    EXPECT_THROW(tokenizer->Decode(std::vector<int32_t>{bad}), InputError);
    EXPECT_EQ(tokenizer->BytesOf(bad), "");
  }
}

}  // namespace
}  // namespace trimtab
