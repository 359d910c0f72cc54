#include "engine/ops/moe/sequence_routing.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/ops/attention/row_layout.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

class SequenceRoutingTest : public OpTest {
 protected:
  std::vector<int32_t> ReadIds(const Tensor& tensor) {
    std::vector<int32_t> ids(static_cast<size_t>(tensor.numel()));
    device().CopyToHost(ids.data(), tensor.raw(), tensor.bytes());
    return ids;
  }
  Tensor Unwritten(int64_t rows, int64_t columns) {
    return Ids(std::vector<int32_t>(static_cast<size_t>(rows * columns), -7))
        .Reshape({rows, columns});
  }
};

/// Megatron-Core's sinkhorn, in double, for one sequence: the balanced matrix [T, E].
std::vector<double> SinkhornReference(const std::vector<double>& logits, size_t experts) {
  const size_t tokens = logits.size() / experts;
  std::vector<double> cost;
  for (const double logit : logits) cost.push_back(std::exp(logit));
  std::vector<double> d0(tokens, 1.0);
  std::vector<double> d1(experts, 1.0);
  double error = 1e9;
  while (error > 1e-4) {
    for (size_t t = 0; t < tokens; ++t) {
      double sum = 0;
      for (size_t e = 0; e < experts; ++e) sum += d1[e] * cost[t * experts + e];
      d0[t] = 1.0 / static_cast<double>(tokens) / (sum + 1e-8);
    }
    error = 0;
    for (size_t e = 0; e < experts; ++e) {
      double sum = 0;
      for (size_t t = 0; t < tokens; ++t) sum += d0[t] * cost[t * experts + e];
      const double next = 1.0 / static_cast<double>(experts) / (sum + 1e-8);
      error += std::abs(next - d1[e]) / static_cast<double>(experts);
      d1[e] = next;
    }
  }
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t e = 0; e < experts; ++e) cost[t * experts + e] *= d0[t] * d1[e];
  }
  return cost;
}

TEST(SequenceRowsTest, PutsEveryPositionWhereItsRankHasIt) {
  for (const int64_t ranks : {1, 2, 3}) {
    const SequenceRows rows = {.batch = 2, .sequence = 12, .ranks = ranks};
    std::set<int64_t> seen;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const RowLayout held = RowLayout::ZigZag(1, 12, ranks, rank);
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t token = 0; token < held.sequence; ++token) {
          const int64_t row = (rank * 2 + b) * held.sequence + token;
          EXPECT_EQ(rows.row(b, held.offset(token)), row);
          seen.insert(row);
        }
      }
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(rows.rows()));
  }
}

TEST_P(SequenceRoutingTest, SinkhornChoosesTheHighestBalancedEntry) {
  for (const SequenceRows& rows : {SequenceRows{2, 24, 1}, SequenceRows{3, 24, 2}}) {
    constexpr int64_t kExperts = 6;
    auto logits = Values(rows.rows() * kExperts, 1, 2.0f);
    // All tokens would take expert 0.
    for (size_t i = 0; i < logits.size(); i += kExperts) logits[i] += 3.0f;
    Tensor choice = Unwritten(rows.rows(), 1);
    SinkhornChoose(rows, Input({rows.rows(), kExperts}, logits), choice);
    const std::vector<int32_t> actual = ReadIds(choice);
    for (int64_t b = 0; b < rows.batch; ++b) {
      std::vector<double> sequence;
      for (int64_t p = 0; p < rows.sequence; ++p) {
        for (int64_t e = 0; e < kExperts; ++e) {
          sequence.push_back(logits[static_cast<size_t>(rows.row(b, p) * kExperts + e)]);
        }
      }
      const std::vector<double> balanced = SinkhornReference(sequence, kExperts);
      std::set<int64_t> used;
      for (int64_t p = 0; p < rows.sequence; ++p) {
        const auto row = balanced.begin() + p * kExperts;
        const int64_t best = std::max_element(row, row + kExperts) - row;
        EXPECT_EQ(actual[static_cast<size_t>(rows.row(b, p))], best) << b << ", " << p;
        used.insert(best);
      }
      EXPECT_GT(used.size(), 3u) << "balanced over the experts";
    }
  }
}

TEST_P(SequenceRoutingTest, SinkhornStandsLargeLogits) {
  const std::vector<float> logits = {500, 0, 0, 499, 500, 0, 0, 499};
  Tensor choice = Unwritten(4, 1);
  SinkhornChoose({.batch = 1, .sequence = 4}, Input({4, 2}, logits), choice);
  EXPECT_EQ(ReadIds(choice), (std::vector<int32_t>{0, 1, 0, 1}));
}

TEST_P(SequenceRoutingTest, DropsByPosition) {
  const Tensor choice = Ids(std::vector<int32_t>{0, 1, 0, 2, 0, 1, 0, 1}).Reshape({4, 2});
  const Tensor weights = Input({4, 2}, std::vector<float>{1, 1, 2, 2, 3, 3, 4, 4});
  Tensor kept = Unwritten(4, 2);
  DropTokens({.batch = 1, .sequence = 4}, 3, 2, DropPolicy::kPosition, choice, weights, kept);
  EXPECT_EQ(ReadIds(kept), (std::vector<int32_t>{0, 1, 0, 2, -1, 1, -1, -1}));
}

TEST_P(SequenceRoutingTest, DropsByWeightAndOfEqualOnesTheLater) {
  const Tensor choice = Ids(std::vector<int32_t>{0, 1, 0, 2, 0, 1, 0, 1}).Reshape({4, 2});
  const Tensor weights = Input({4, 2}, std::vector<float>{1, 5, 2, 2, 3, 5, 2, 5});
  Tensor kept = Unwritten(4, 2);
  DropTokens({.batch = 1, .sequence = 4}, 3, 2, DropPolicy::kProbability, choice, weights, kept);
  EXPECT_EQ(ReadIds(kept), (std::vector<int32_t>{-1, 1, 0, 2, 0, 1, -1, -1}));
}

TEST_P(SequenceRoutingTest, SequencesDropForThemselvesWhoeverSharesThem) {
  constexpr int64_t kTopk = 2;
  constexpr int64_t kExperts = 4;
  const SequenceRows whole = {.batch = 3, .sequence = 24, .ranks = 1};
  const auto values = Values(whole.rows() * kTopk, 3);
  for (const DropPolicy policy : {DropPolicy::kProbability, DropPolicy::kPosition}) {
    std::vector<std::vector<int32_t>> by_ranks;
    for (const int64_t ranks : {1, 2, 3, 4}) {
      const SequenceRows rows = {whole.batch, whole.sequence, ranks};
      std::vector<int32_t> choice(values.size());
      std::vector<float> weights(values.size());
      const auto for_each = [&](const auto& visit) {
        for (int64_t b = 0; b < rows.batch; ++b) {
          for (int64_t p = 0; p < rows.sequence; ++p) {
            for (int64_t j = 0; j < kTopk; ++j) {
              visit(static_cast<size_t>(whole.row(b, p) * kTopk + j),
                    static_cast<size_t>(rows.row(b, p) * kTopk + j), p, j);
            }
          }
        }
      };
      for_each([&](size_t from, size_t to, int64_t p, int64_t j) {
        choice[to] = static_cast<int32_t>((p * p + j) % kExperts);
        weights[to] = values[from];
      });
      Tensor kept = Unwritten(rows.rows(), kTopk);
      DropTokens(rows, kExperts, 9, policy, Ids(choice).Reshape({rows.rows(), kTopk}),
                 Input({rows.rows(), kTopk}, weights), kept);
      const std::vector<int32_t> there = ReadIds(kept);
      std::vector<int32_t>& in_order = by_ranks.emplace_back(values.size());
      for_each([&](size_t to, size_t from, int64_t, int64_t) { in_order[to] = there[from]; });
    }
    EXPECT_GT(std::count(by_ranks[0].begin(), by_ranks[0].end(), -1), 0);
    for (size_t i = 1; i < by_ranks.size(); ++i) EXPECT_EQ(by_ranks[i], by_ranks[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SequenceRoutingTest, testing::ValuesIn(OnlyFp32(AllTargets())),
                         TargetName);

}  // namespace
}  // namespace trimtab
