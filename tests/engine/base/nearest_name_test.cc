#include "engine/base/nearest_name.h"

#include <gtest/gtest.h>

#include <vector>

namespace trimtab {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("schedule", "shcedule"), 1u);  // a swap of neighbours is one edit
  EXPECT_EQ(EditDistance("MBS", "mbs"), 0u);
  EXPECT_EQ(EditDistance("ca", "abc"), 3u);
}

TEST(NearestName, FindsWhatWasMeant) {
  const std::vector<std::string> names = {"gpt2-124m", "gpt3-175b", "llama2-7b", "llama2-70b",
                                          "tp"};
  EXPECT_EQ(NearestName("lama2-7b", names), "llama2-7b");
  EXPECT_EQ(NearestName("llama2-70", names), "llama2-7b");  // the first of two as near
  EXPECT_EQ(NearestName("GPT2-124M", names), "gpt2-124m");
  EXPECT_EQ(NearestName("gpt2", names), "gpt2-124m");  // a beginning
  EXPECT_EQ(NearestName("pt", names), "tp");
  EXPECT_EQ(NearestName("mistral", names), "");
  EXPECT_EQ(NearestName("", names), "");
  EXPECT_EQ(NearestName(std::string(100000, 'x'), names), "");
}

TEST(SuggestName, ListsTheNamesWhenNoneIsNear) {
  const std::vector<std::string> names = {"tp", "dp"};
  EXPECT_EQ(SuggestName("tpp", names), "; did you mean 'tp'?");
  EXPECT_EQ(SuggestName("recompute", names), "; valid: tp, dp");
}

}  // namespace
}  // namespace trimtab
