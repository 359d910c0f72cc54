#include "engine/layers/attention/context_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace trimtab {
namespace {

// Every query sees the keys up to its own position, each once, whatever rank has them.
TEST(VisibleBlocks, AddUpToTheCausalMask) {
  for (const int ranks : {2, 3, 4, 7}) {
    for (const auto& [run, by_distance] :
         {std::pair<int64_t, bool>(1, false), {3, false}, {1, true}, {3, true}}) {
      const int64_t length = 2 * ranks * run;
      for (int rank = 0; rank < ranks; ++rank) {
        const RowLayout queries = RowLayout::ZigZag(1, length, ranks, rank);
        std::map<std::pair<int64_t, int64_t>, int> seen;
        for (int source = 0; source < ranks; ++source) {
          const RowLayout keys = RowLayout::ZigZag(1, length, ranks, source);
          for (const AttentionBlock& block : VisibleBlocks(rank, source, run, by_distance)) {
            const int64_t ahead = AheadOf(queries, keys, block);
            for (int64_t i = 0; i < block.size; ++i) {
              for (int64_t j = 0; j < std::min(block.size, i + ahead + 1); ++j) {
                const int64_t query = queries.offset(block.query + i);
                const int64_t key = keys.offset(block.key + j);
                ++seen[{query, key}];
                if (!by_distance) continue;
                EXPECT_EQ(i + ahead - j, query - key);
              }
            }
          }
        }
        for (int64_t token = 0; token < queries.sequence; ++token) {
          for (int64_t key = 0; key < length; ++key) {
            const int64_t query = queries.offset(token);
            EXPECT_EQ((seen[{query, key}]), key <= query ? 1 : 0) << query << " sees " << key;
          }
        }
      }
    }
  }
}

// So that the ranks go around the ring in step, and one stands for all where a step is priced.
TEST(VisibleBlocks, AreAsLargeOnEveryRankAtEveryStep) {
  constexpr int kRanks = 5;
  for (const bool by_distance : {false, true}) {
    const auto sizes_of = [by_distance](int rank, int step) {
      std::vector<std::pair<int64_t, bool>> sizes;
      for (const AttentionBlock& block :
           VisibleBlocks(rank, (rank + step) % kRanks, 6, by_distance)) {
        const int64_t ahead =
            AheadOf(RowLayout::ZigZag(1, 12 * kRanks, kRanks, rank),
                    RowLayout::ZigZag(1, 12 * kRanks, kRanks, (rank + step) % kRanks), block);
        sizes.emplace_back(block.size, ahead < block.size);
      }
      return sizes;
    };
    for (int step = 0; step < kRanks; ++step) {
      for (int rank = 1; rank < kRanks; ++rank) EXPECT_EQ(sizes_of(rank, step), sizes_of(0, step));
    }
  }
}

}  // namespace
}  // namespace trimtab
