#include "engine/data/dataset/permutation.h"

#include <gtest/gtest.h>

#include <vector>

namespace trimtab {
namespace {

std::vector<int64_t> Values(int64_t n, uint64_t key) {
  const Permutation permutation(n, key);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(permutation(i));
  return values;
}

TEST(Permutation, HitsEveryElementOnce) {
  for (const int64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4095, 4096, 4097}) {
    for (const uint64_t key : {0u, 1u, 77u}) {
      std::vector<int> hits(static_cast<size_t>(n));
      for (const int64_t value : Values(n, key)) {
        ASSERT_GE(value, 0);
        ASSERT_LT(value, n);
        ++hits[static_cast<size_t>(value)];
      }
      EXPECT_EQ(hits, std::vector<int>(static_cast<size_t>(n), 1)) << "n " << n << " key " << key;
    }
  }
}

TEST(Permutation, DependsOnTheKeyAlone) {
  EXPECT_EQ(Values(1000, 5), Values(1000, 5));
  EXPECT_NE(Values(1000, 5), Values(1000, 6));
}

TEST(Permutation, LeavesFewElementsInPlaceOrInOrder) {
  const std::vector<int64_t> values = Values(10000, 42);
  int in_place = 0;
  int in_order = 0;
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    in_place += values[i] == static_cast<int64_t>(i) ? 1 : 0;
    in_order += values[i] + 1 == values[i + 1] ? 1 : 0;
  }
  // A random permutation has one of each on average; twenty would be a broken one.
  EXPECT_LT(in_place, 20);
  EXPECT_LT(in_order, 20);
}

TEST(Permutation, WorksForSizesThatNoMemoryHolds) {
  const int64_t n = (int64_t{1} << 40) + 12345;
  const Permutation permutation(n, 9);
  for (const int64_t i : {int64_t{0}, int64_t{1}, n / 2, n - 1}) {
    EXPECT_GE(permutation(i), 0);
    EXPECT_LT(permutation(i), n);
  }
}

}  // namespace
}  // namespace trimtab
