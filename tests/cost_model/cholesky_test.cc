#include "cost_model/cholesky.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

TEST(Cholesky, SolvesWorkedByHand) {
  // [[4, 2], [2, 10]] * (1, -2) = (0, -18).
  const Cholesky two({{4, 2}, {99, 10}});  // the lower half is not read
  const std::vector<double> x = two.Solve({0, -18});
  EXPECT_DOUBLE_EQ(x[0], 1);
  EXPECT_DOUBLE_EQ(x[1], -2);
  EXPECT_DOUBLE_EQ(two.Solve({4, 2})[0], 1);
}

TEST(Cholesky, SolvesWhatAProductGave) {
  const std::vector<std::vector<double>> a = {
      {6, 1, 2, 0}, {1, 5, 0, 1}, {2, 0, 7, 3}, {0, 1, 3, 8}};
  const std::vector<double> x = {0.5, -1, 2, 3};
  std::vector<double> b(4, 0);
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 4; ++j) b[i] += a[i][j] * x[j];
  }
  const std::vector<double> solved = Cholesky(a).Solve(b);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(solved[i], x[i], 1e-14) << i;
}

}  // namespace
}  // namespace trimtab
