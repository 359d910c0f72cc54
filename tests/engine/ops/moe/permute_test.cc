#include "engine/ops/moe/permute.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr int64_t kExperts = 5;

class PermuteTest : public OpTest {
 protected:
  struct Sizes {
    int64_t tokens;
    int64_t topk;
    int64_t columns;
  };
  static std::vector<Sizes> AllSizes() {
    return {{1, 1, 1}, {7, 2, 17}, {700, 3, 8}, {130, 2, 66}, {3, 2, 1160}};
  }

  /// Different experts for each token; one choice in seven has been dropped.
  static std::vector<int32_t> Choice(const Sizes& s) {
    std::vector<int32_t> choice;
    for (int64_t c = 0; c < s.tokens * s.topk; ++c) {
      const int64_t token = c / s.topk;
      const auto expert = static_cast<int32_t>((token * token + c % s.topk) % kExperts);
      choice.push_back(c % 7 == 6 ? -1 : expert);
    }
    return choice;
  }
  struct Places {
    std::vector<int32_t> row_of;
    std::vector<int32_t> choice_of;
  };
  /// By looking for the choices of each of some experts in turn.
  static Places PlacesOf(const std::vector<int32_t>& choice, int64_t padded_rows,
                         const ExpertRange& experts = {0, kExperts}) {
    Places places;
    places.row_of.assign(choice.size(), -1);
    for (int64_t e = experts.first; e < experts.first + experts.count; ++e) {
      for (size_t c = 0; c < choice.size(); ++c) {
        if (choice[c] != e) continue;
        places.row_of[c] = static_cast<int32_t>(places.choice_of.size());
        places.choice_of.push_back(static_cast<int32_t>(c));
      }
      if (padded_rows > 0) {
        places.choice_of.resize(static_cast<size_t>((e - experts.first + 1) * padded_rows), -1);
      }
    }
    return places;
  }
  std::vector<int32_t> ReadIds(const Tensor& tensor) {
    std::vector<int32_t> ids(static_cast<size_t>(tensor.numel()));
    device().CopyToHost(ids.data(), tensor.raw(), tensor.bytes());
    return ids;
  }
};

TEST_P(PermuteTest, SortsChoicesByExpert) {
  for (const Sizes& s : AllSizes()) {
    const std::vector<int32_t> choice = Choice(s);
    for (const ExpertRange& experts : {ExpertRange{0, kExperts}, {1, 3}, {4, 1}}) {
      for (const int64_t padded : {int64_t{0}, s.tokens * s.topk}) {
        const Places expected = PlacesOf(choice, padded, experts);
        Tensor row_of = Ids(std::vector<int32_t>(choice.size(), -7)).Reshape({s.tokens, s.topk});
        Tensor choice_of = Ids(std::vector<int32_t>(expected.choice_of.size(), -7));
        SortByExpert(Ids(choice).Reshape({s.tokens, s.topk}), experts, padded, row_of, choice_of);
        EXPECT_EQ(ReadIds(row_of), expected.row_of);
        EXPECT_EQ(ReadIds(choice_of), expected.choice_of);
      }
    }
  }
}

// Rows that came are told apart by rank, expert and number, and brought in order by these.
TEST_P(PermuteTest, OrdersWhatCameByExpert) {
  struct Row {
    int64_t expert, arrival, number;
  };
  for (const auto& [ranks, lead] : {std::pair{1, 1}, {4, 1}, {4, 2}, {6, 3}, {6, 6}}) {
    for (const ExpertRange& experts : {ExpertRange{0, kExperts}, {1, 3}, {4, 1}}) {
      std::vector<float> counts;
      for (int64_t i = 0; i < ranks * kExperts; ++i) {
        counts.push_back(static_cast<float>((i * i + 3) % (i % 5 == 4 ? 300 : 7)));
      }
      std::vector<Row> came;
      int64_t arrival = 0;
      for (int first = 0; first < lead; ++first) {
        for (int rank = first; rank < ranks; rank += lead, ++arrival) {
          for (int64_t e = experts.first; e < experts.first + experts.count; ++e) {
            const float count = counts[static_cast<size_t>(rank * kExperts + e)];
            for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
              came.push_back({e, arrival, i});
            }
          }
        }
      }
      std::vector<int32_t> expected(came.size());
      std::iota(expected.begin(), expected.end(), 0);
      std::sort(expected.begin(), expected.end(), [&came](int32_t a, int32_t b) {
        const Row& x = came[static_cast<size_t>(a)];
        const Row& y = came[static_cast<size_t>(b)];
        return std::tie(x.expert, x.arrival, x.number) < std::tie(y.expert, y.arrival, y.number);
      });
      std::vector<int32_t> inverse(came.size());
      for (size_t row = 0; row < expected.size(); ++row) {
        inverse[static_cast<size_t>(expected[row])] = static_cast<int32_t>(row);
      }
      Tensor by_expert = Ids(std::vector<int32_t>(came.size(), -7));
      Tensor by_rank = Ids(std::vector<int32_t>(came.size(), -7));
      Tensor table = Output({ranks, kExperts}, DType::kF32);
      CopyFromHost(table, counts);
      OrderArrivals(table, lead, experts, by_expert, by_rank);
      EXPECT_EQ(ReadIds(by_expert), expected) << ranks << " ranks in steps of " << lead;
      EXPECT_EQ(ReadIds(by_rank), inverse);
    }
  }
}

TEST_P(PermuteTest, TakesTokensToTheirRows) {
  for (const Sizes& s : AllSizes()) {
    if (Skips(s.tokens * s.topk * s.columns)) continue;
    const Places places = PlacesOf(Choice(s), s.tokens * s.topk);
    const auto x = Values(s.tokens * s.columns, 1);
    std::vector<double> expected;
    for (const int32_t c : places.choice_of) {
      for (int64_t i = 0; i < s.columns; ++i) {
        expected.push_back(c < 0 ? 0 : x[static_cast<size_t>(c / s.topk * s.columns + i)]);
      }
    }
    const auto rows_count = static_cast<int64_t>(places.choice_of.size());
    Tensor rows = Output({rows_count, s.columns});
    Permute(Input({s.tokens, s.columns}, x), Ids(places.choice_of), s.topk, rows);
    EXPECT_EQ(ToDouble(Read(rows)), expected);
  }
}

TEST_P(PermuteTest, SumsWeightedRowsAndItsDerivative) {
  for (const Sizes& s : AllSizes()) {
    if (Skips(s.tokens * s.topk * s.columns)) continue;
    const Places places = PlacesOf(Choice(s), s.tokens * s.topk);
    const auto rows_count = static_cast<int64_t>(places.choice_of.size());
    const auto rows = Values(rows_count * s.columns, 2);
    const auto weights = Rounded(DType::kF32, RandomValues(s.tokens * s.topk, 3));
    const auto dy = Values(s.tokens * s.columns, 4);
    std::vector<double> expected(dy.size());
    std::vector<double> unweighted(dy.size());
    std::vector<double> drows(rows.size());
    std::vector<double> dweights(weights.size());
    for (size_t c = 0; c < places.row_of.size(); ++c) {
      if (places.row_of[c] < 0) continue;
      for (int64_t i = 0; i < s.columns; ++i) {
        const auto y = static_cast<size_t>(static_cast<int64_t>(c) / s.topk * s.columns + i);
        const auto row = static_cast<size_t>(places.row_of[c] * s.columns + i);
        expected[y] += static_cast<double>(weights[c]) * static_cast<double>(rows[row]);
        unweighted[y] += static_cast<double>(rows[row]);
        drows[row] = static_cast<double>(weights[c]) * static_cast<double>(dy[y]);
        dweights[c] += static_cast<double>(dy[y]) * static_cast<double>(rows[row]);
      }
    }
    const Tensor rows_device = Input({rows_count, s.columns}, rows);
    const Tensor row_of = Ids(places.row_of).Reshape({s.tokens, s.topk});
    const Tensor weights_device = Input({s.tokens, s.topk}, weights, DType::kF32);
    Tensor y = Output({s.tokens, s.columns});
    Unpermute(rows_device, row_of, weights_device, y);
    ExpectClose(Read(y), expected, tolerance().reduction, "y");
    Unpermute(rows_device, row_of, {}, y);
    ExpectClose(Read(y), unweighted, tolerance().reduction, "unweighted");
    Tensor drows_device = Output({rows_count, s.columns});
    Tensor dweights_device = Output({s.tokens, s.topk}, DType::kF32);
    UnpermuteBackward(Input({s.tokens, s.columns}, dy), rows_device, row_of, Ids(places.choice_of),
                      weights_device, drows_device, dweights_device);
    ExpectClose(Read(drows_device), drows, tolerance().elementwise, "drows");
    ExpectClose(Read(dweights_device), dweights, tolerance(DType::kF32).reduction, "dweights");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, PermuteTest, testing::ValuesIn(AllTargets()), TargetName);

}  // namespace
}  // namespace trimtab
