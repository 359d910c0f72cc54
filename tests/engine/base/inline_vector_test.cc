#include "engine/base/inline_vector.h"

#include <gtest/gtest.h>

#include <numeric>

namespace trimtab {
namespace {

TEST(InlineVectorTest, HoldsAnyNumberOfElements) {
  for (size_t count = 0; count < 9; ++count) {
    InlineVector<int, 3> values;
    for (size_t i = 0; i < count; ++i) values.push_back(static_cast<int>(10 * i));
    ASSERT_EQ(values.size(), count);
    EXPECT_EQ(values.empty(), count == 0);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(values[i], static_cast<int>(10 * i));
    EXPECT_EQ(std::accumulate(values.begin(), values.end(), size_t{0}), 5 * count * (count - 1));
  }
}

TEST(InlineVectorTest, ComparesElements) {
  using Values = InlineVector<int, 2>;
  EXPECT_EQ((Values{1, 2, 3}), (Values{1, 2, 3}));
  EXPECT_FALSE((Values{1, 2, 3}) == (Values{1, 2}));
  EXPECT_FALSE((Values{1}) == (Values{2}));
  EXPECT_EQ(Values(), Values());
}

TEST(InlineVectorTest, CopiesAreIndependent) {
  InlineVector<int, 2> one = {1, 2, 3};
  InlineVector<int, 2> other = one;
  other.push_back(4);
  EXPECT_EQ(one.size(), 3u);
  EXPECT_EQ(other[3], 4);
}

}  // namespace
}  // namespace trimtab
