#include "engine/infer/scheduler/lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace trimtab {
namespace {

/// Looks through the whole text.
std::vector<int32_t> Scan(std::span<const int32_t> history, int64_t most) {
  for (const size_t length : {size_t{3}, size_t{2}}) {
    if (history.size() <= length || most <= 0) continue;
    const auto pattern = history.last(length);
    for (size_t begin = history.size() - length; begin-- > 0;) {
      if (!std::ranges::equal(history.subspan(begin, length), pattern)) continue;
      const auto rest = history.subspan(begin + length);
      const size_t count = std::min(rest.size(), static_cast<size_t>(most));
      return {rest.begin(), rest.begin() + static_cast<int64_t>(count)};
    }
  }
  return {};
}

TEST(ContinuationIndex, FindsWhatAScanOfTheWholeTextFinds) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    std::vector<int32_t> text;
    ContinuationIndex index;
    const int32_t tokens = seed % 2 == 0 ? 3 : 9;
    for (int step = 0; step < 200; ++step) {
      for (uint32_t more = random() % 4; more > 0; --more) {
        text.push_back(static_cast<int32_t>(random()) % tokens);
      }
      const auto most = static_cast<int64_t>(random() % 6);
      ASSERT_EQ(index.Find(text, most), Scan(text, most)) << "seed " << seed << " step " << step;
    }
  }
}

TEST(ContinuationIndex, ProposesWhatFollowedTheLatestPlace) {
  ContinuationIndex index;
  const std::vector<int32_t> text = {1, 2, 3, 7, 1, 2, 3, 8, 9, 1, 2, 3};
  EXPECT_EQ(index.Find(text, 2), (std::vector<int32_t>{8, 9}));
  EXPECT_EQ(index.Find(text, 0), std::vector<int32_t>{});
}

// What was looked at before is not read again: neither that 4, 5 now stands there, nor that 2, 3
// has gone from where the index has it, is noticed.
TEST(ContinuationIndex, GoesThroughATextOnce) {
  std::vector<int32_t> text = {1, 2, 3, 7, 8, 9, 6, 6};
  ContinuationIndex index;
  EXPECT_EQ(index.Find(text, 1), std::vector<int32_t>{});
  text = {4, 5, 0, 7, 8, 9, 6, 6, 4, 5};
  EXPECT_EQ(index.Find(text, 1), std::vector<int32_t>{});
  text.insert(text.end(), {2, 3});
  EXPECT_EQ(index.Find(text, 1), std::vector<int32_t>{7});
}

}  // namespace
}  // namespace trimtab
