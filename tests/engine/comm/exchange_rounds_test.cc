#include "engine/comm/mpi/exchange_rounds.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace trimtab {
namespace {

size_t LogOf(int size) {
  return static_cast<size_t>(std::bit_width(static_cast<unsigned>(size - 1)));
}

TEST(DisseminationRounds, EveryRankHearsOfEveryOther) {
  for (int size = 1; size <= 40; ++size) {
    const auto count = static_cast<size_t>(size);
    // Blocks of a rank in the order in which they came: block i is that of the rank i back.
    std::vector<std::vector<int>> held(count);
    for (int rank = 0; rank < size; ++rank) held[static_cast<size_t>(rank)] = {rank};
    for (size_t round = 0; round < LogOf(size); ++round) {
      const std::vector<std::vector<int>> before = held;
      for (int rank = 0; rank < size; ++rank) {
        const auto rounds = DisseminationRounds(rank, size);
        ASSERT_EQ(rounds.size(), LogOf(size));
        const DisseminationRound& mine = rounds[round];
        const DisseminationRound theirs = DisseminationRounds(mine.from, size)[round];
        ASSERT_EQ(theirs.to, rank);
        ASSERT_EQ(theirs.blocks, mine.blocks);
        std::vector<int>& blocks = held[static_cast<size_t>(rank)];
        ASSERT_EQ(std::ssize(blocks), mine.distance);
        const std::vector<int>& sent = before[static_cast<size_t>(mine.from)];
        blocks.insert(blocks.end(), sent.begin(), sent.begin() + mine.blocks);
      }
    }
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<int>& blocks = held[static_cast<size_t>(rank)];
      ASSERT_EQ(blocks.size(), count);
      for (int back = 0; back < size; ++back) {
        EXPECT_EQ(blocks[static_cast<size_t>(back)], (rank + size - back) % size);
      }
    }
  }
}

TEST(PlaceInTree, TheRootReachesEveryRankOverFewHops) {
  for (int size = 1; size <= 40; ++size) {
    for (const int root : {0, size / 2, size - 1}) {
      int children = 0;
      for (int rank = 0; rank < size; ++rank) {
        const TreePlace place = PlaceInTree(rank, size, root);
        EXPECT_EQ(place.parent < 0, rank == root);
        EXPECT_LE(place.children.size(), LogOf(size));
        for (const int child : place.children) {
          EXPECT_EQ(PlaceInTree(child, size, root).parent, rank);
          ++children;
        }
        size_t hops = 0;
        for (int at = rank; at != root; at = PlaceInTree(at, size, root).parent) ++hops;
        EXPECT_LE(hops, LogOf(size));
      }
      EXPECT_EQ(children, size - 1);
    }
  }
}

}  // namespace
}  // namespace trimtab
