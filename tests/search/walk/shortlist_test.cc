#include "search/walk/shortlist.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace trimtab {
namespace {

struct Offered {
  RunConfig run;
  Prediction prediction;
};

/// Candidates of three classes, the last a rare and slow one, with many equal figures.
std::vector<Offered> RandomCandidates(size_t count) {
  std::mt19937 random(20241122);
  const auto pick = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  std::vector<Offered> candidates(count);
  for (Offered& each : candidates) {
    const int its_class = pick(0, 100) == 0 ? 2 : pick(0, 1);
    each.run.device = DeviceKind::kCuda;
    each.run.layout.tp = 2;
    each.run.layout.dp = 4;
    each.run.layout.numerics.precision = its_class == 0 ? Precision::kBf16 : Precision::kFp8;
    if (its_class == 2) each.run.layout.numerics.moments = DType::kBf16;
    each.prediction.step_time_s = pick(10, 300) + (its_class == 2 ? 1000 : 0);
    each.prediction.tokens_per_s = 1000 / each.prediction.step_time_s;
    each.prediction.peak_mem_bytes = pick(100, 400);
  }
  return candidates;
}

std::set<int64_t> NumbersOf(const std::vector<std::shared_ptr<const Shortlisted>>& list) {
  std::set<int64_t> numbers;
  for (const auto& each : list) numbers.insert(each->place.path[0]);
  return numbers;
}

/// Numbers of the best `most` of those that `counts` says.
template <typename Counts>
std::vector<int64_t> BestOf(const std::vector<Offered>& candidates, Objective objective,
                            size_t most, const Counts& counts) {
  std::vector<std::pair<SortKey, int64_t>> keyed;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Offered& each = candidates[i];
    if (!counts(each)) continue;
    keyed.emplace_back(PredictionKey(objective, each.run, each.prediction), i);
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<int64_t> best;
  for (const auto& [key, number] : keyed) {
    if (best.size() < most) best.push_back(number);
  }
  return best;
}

/// Offers them in their order, or the other way round.
void OfferAll(const std::vector<Offered>& candidates, bool backwards, Shortlist& shortlist) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    const size_t number = backwards ? candidates.size() - 1 - i : i;
    const Offered& each = candidates[number];
    shortlist.Offer({{static_cast<uint32_t>(number)}}, each.run, each.prediction);
  }
}

TEST(Shortlist, KeepsTheBestByTheObjectiveOfAllAndOfEachClassInAnyOrder) {
  const std::vector<Offered> candidates = RandomCandidates(20'000);
  for (const Objective objective : kObjectives) {
    Shortlist shortlist(objective);
    OfferAll(candidates, false, shortlist);
    const std::set<int64_t> kept = NumbersOf(shortlist.Take());
    EXPECT_LT(kept.size(), Shortlist::kOfAll + 3 * Shortlist::kOfClass + 1);
    OfferAll(candidates, true, shortlist);
    EXPECT_EQ(NumbersOf(shortlist.Take()), kept);
    const auto all = [](const Offered&) { return true; };
    for (const int64_t number : BestOf(candidates, objective, Shortlist::kOfAll, all)) {
      EXPECT_TRUE(kept.contains(number)) << Name(objective) << " " << number;
    }
    const auto rare = [](const Offered& each) {
      return each.run.layout.numerics.moments == DType::kBf16;
    };
    for (const int64_t number : BestOf(candidates, objective, Shortlist::kOfClass, rare)) {
      EXPECT_TRUE(kept.contains(number)) << Name(objective) << " of its class " << number;
    }
  }
}

TEST(Shortlist, KeepsEverythingOfASmallSpaceInItsOrder) {
  const std::vector<Offered> candidates = RandomCandidates(Shortlist::kOfAll);
  Shortlist shortlist(Objective::kThroughput);
  OfferAll(candidates, false, shortlist);
  const auto list = shortlist.Take();
  ASSERT_EQ(list.size(), candidates.size());
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i]->place.path[0], i);
    EXPECT_EQ(list[i]->prediction, candidates[i].prediction);
  }
  EXPECT_TRUE(shortlist.Take().empty());
}

TEST(Shortlist, KeepsPlainDataParallelismHoweverSlow) {
  std::vector<Offered> candidates = RandomCandidates(5'000);
  Offered& plain = candidates[777];
  plain.run.layout = {.dp = 8};
  plain.run.layout.numerics.precision = Precision::kBf16;
  plain.prediction.step_time_s = 1e6;
  plain.prediction.tokens_per_s = 1e-3;
  plain.prediction.peak_mem_bytes = 1'000'000;
  Shortlist shortlist(Objective::kThroughput);
  OfferAll(candidates, false, shortlist);
  EXPECT_TRUE(NumbersOf(shortlist.Take()).contains(777));
}

}  // namespace
}  // namespace trimtab
