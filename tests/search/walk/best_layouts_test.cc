// The best layouts, found without looking at each, are those that looking at each finds.
#include "search/walk/best_layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "engine/families/load_config.h"
#include "search/space/predictor.h"
#include "search/space/space_rows.h"
#include "search/walk/alternatives.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

struct Found {
  std::set<std::string> keys;
  int64_t size = 0;
  PrunedCounts pruned;
};

Found FoundIn(const BestLayouts& best) {
  Found found{.keys = {}, .size = best.counts.size, .pruned = best.counts.cut_by_rule};
  for (const auto& each : best.list) found.keys.insert(CandidateKey(each->run, true));
  return found;
}

bool IsInTheRunning(const Problem& problem, const RunConfig& run, const Prediction& prediction) {
  const int64_t limit = run.memory_per_rank_bytes;
  return (limit == 0 || prediction.peak_mem_bytes <= limit) &&
         SpeedRequirements(problem).FirstUnmet(run.layout.world_size(), prediction.tokens_per_s) ==
             nullptr;
}

/// The candidate, but for which plan of recomputation it has of those of a kind.
std::string FamilyOf(RunConfig run) {
  const RecomputeKind kind = run.layout.recompute[0].kind;
  run.layout.recompute = {};
  return fmt::format("{} {}", CandidateKey(run, true), static_cast<int>(kind));
}

/// Looks at each candidate.
Found TheLongWay(const Problem& problem, Shortlist list, Predictor& predictor) {
  uint32_t number = 0;
  std::map<std::string, Shortlisted> best_of;
  const SpaceCounts counts = WalkSpace(problem, [&](const RunConfig& run) {
    Shortlisted each = {{{number++}}, run, predictor.ClosedForm(run)};
    if (!IsInTheRunning(problem, run, each.prediction)) return;
    const auto [best, is_new] = best_of.try_emplace(FamilyOf(run), each);
    const auto score = [&](const Shortlisted& one) {
      return PredictionKey(list.objective(), one.run, one.prediction).first;
    };
    const double slack = PlanSlack(list.objective());
    if (!is_new && score(each) < score(best->second) * (1 - slack)) best->second = each;
  });
  for (const auto& [family, best] : best_of) list.Offer(best.place, best.run, best.prediction);
  Found found{.keys = {}, .size = counts.enumerated, .pruned = counts.pruned};
  for (const auto& each : list.Take()) found.keys.insert(CandidateKey(each->run, true));
  return found;
}

constexpr std::array kSomePlans = {"none",
                                   "full:block:1",
                                   "full:block:2",
                                   "full",
                                   "full:uniform:2",
                                   "full:uniform:3",
                                   "full:uniform:5",
                                   "selective:core_attn",
                                   "selective:layernorm",
                                   "selective:layernorm+mlp_act",
                                   "selective:logits",
                                   "selective:mlp",
                                   "selective:core_attn+layernorm+mlp+logits"};

class RandomProblems {
 public:
  Problem Next() {
    Problem problem = TinyProblem();
    ModelConfig& model = problem.model;
    model.num_layers = Pick(1, 6);
    model.num_heads = model.num_kv_heads = Pick(1, 2) * 2;
    model.hidden_size = model.num_heads * 16 * Pick(1, 3);
    model.ffn_hidden_size = 32 * Pick(1, 4);
    if (Pick(0, 3) == 0) {
      model.moe = {.num_experts = 4, .router_topk = Pick(1, 2), .ffn_hidden_size = 32};
    }
    if (Pick(0, 1) == 0) {
      problem.cluster.device = DeviceKind::kCuda;
      problem.cluster.profile = BuiltinProfile("h100-sxm");
      problem.cluster.max_ranks = int64_t{1} << Pick(0, 3);
      problem.cluster.ranks_per_node = 2;
      problem.precisions = {Precision::kBf16};
      if (Pick(0, 1) == 0 && !model.moe.used()) problem.precisions.push_back(Precision::kFp8);
    } else {
      problem.max_ranks = int64_t{1} << Pick(0, 2);
    }
    if (Pick(0, 3) == 0) problem.optimizer_states = {"auto"};
    problem.sequence_length = 16 * Pick(1, 2);
    problem.global_batch = Pick(1, 8) * 2;
    if (Pick(0, 3) == 0) {
      problem.global_batches = {problem.global_batch, 3 * problem.global_batch};
    }
    problem.max_micro_batch = Pick(1, 4);
    if (Pick(0, 3) == 0) {
      problem.tokens = 1e9;
      problem.requirements =
          ParseTrainingRequirements(fmt::format("days<={}", 1e-4 * std::pow(10, Pick(0, 4))));
    }
    if (Pick(0, 3) > 0) problem.memory_per_rank_bytes = int64_t{30'000} << Pick(0, 6);
    // Of the many plans of recomputation mostly a few, for the sake of time.
    if (Pick(0, 7) > 0) {
      Narrowing some = {.key = "recompute", .forbidden = false, .values = {}};
      for (int64_t i = Pick(2, 6); i > 0; --i) {
        some.values.emplace_back(
            kSomePlans[static_cast<size_t>(Pick(0, std::ssize(kSomePlans) - 1))]);
      }
      problem.narrowings.push_back(some);
    }
    return problem;
  }
  int64_t Pick(int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random_);
  }

 private:
  std::mt19937 random_{31};
};

#ifdef TRIMTAB_EXHAUSTIVE
constexpr int kProblems = 3000;
#else
constexpr int kProblems = 15;
#endif
// Candidates of a problem that are all looked at. A few problems in a hundred have more, up to
// millions: they would take longer than all the others together.
constexpr int64_t kMostCandidates = 100'000;

TEST(BestLayouts, AreThoseThatLookingAtEachFinds) {
  RandomProblems random;
  int64_t visited = 0;
  int64_t cut_by_bound = 0;
  int64_t cut_by_memory = 0;
  int left_out = 0;
  for (int i = 0; i < kProblems; ++i) {
    const Problem problem = random.Next();
    const Shortlist list(kObjectives[static_cast<size_t>(random.Pick(0, 2))],
                         static_cast<size_t>(random.Pick(1, 10)),
                         static_cast<size_t>(random.Pick(0, 3)));
    const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
    const BestLayouts best = FindBestLayouts(problem, list, *predictor, 1);
    if (best.counts.size > kMostCandidates) {
      ++left_out;
      continue;
    }
    const Found expected = TheLongWay(problem, list, *predictor);
    EXPECT_EQ(FoundIn(best).keys, expected.keys) << ToJson(problem);
    EXPECT_EQ(best.counts.size, expected.size) << ToJson(problem);
    ASSERT_FALSE(testing::Test::HasFailure());
    visited += best.counts.visited;
    cut_by_bound += best.counts.cut_by_bound;
    cut_by_memory += best.counts.cut_by_memory;
  }
  EXPECT_GT(cut_by_bound, visited) << "of a short list, most candidates need no visit";
  EXPECT_GT(cut_by_memory, 0);
  EXPECT_LT(left_out, kProblems / 10);
}

/// Of each dimension of `best`, the score of the best that differs in it: by looking at each.
std::map<std::string, double> AlternativeScores(const Problem& problem, Objective objective,
                                                const Shortlisted& best, Predictor& predictor) {
  std::map<std::string, double> scores;
  const double least = PredictionKey(objective, best.run, best.prediction).first;
  WalkSpace(problem, [&](const RunConfig& run) {
    const Prediction prediction = predictor.ClosedForm(run);
    if (!IsInTheRunning(problem, run, prediction)) return;
    const double score = PredictionKey(objective, run, prediction).first;
    for (size_t i = 0; i < SpaceRows().size(); ++i) {
      const SpaceRow& row = SpaceRows()[i];
      if (score > Alternatives::Farthest(i) * least || !row.applies(problem, best.run)) continue;
      if (row.alike == nullptr || row.alike(run, best.run)) continue;
      const auto [found, is_new] = scores.try_emplace(row.name, score);
      if (!is_new) found->second = std::min(found->second, score);
    }
  });
  return scores;
}

TEST(BestLayouts, AlternativesAreTheBestOfEachOtherValue) {
  RandomProblems random;
  size_t dimensions = 0;
  int open_walks = 0;
  for (int i = 0; i < kProblems; ++i) {
    const Problem problem = random.Next();
    const Objective objective = kObjectives[static_cast<size_t>(random.Pick(0, 2))];
    const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
    const auto most = static_cast<size_t>(random.Pick(1, 60));
    const BestLayouts found_best =
        FindBestLayouts(problem, Shortlist(objective, most, 0), *predictor, 1);
    auto list = found_best.list;
    if (list.size() < most || found_best.counts.size > kMostCandidates) continue;
    const auto key = [&](const auto& one) {
      return std::pair(PredictionKey(objective, one->run, one->prediction), one->place);
    };
    std::sort(list.begin(), list.end(),
              [&](const auto& a, const auto& b) { return key(a) < key(b); });
    const Shortlisted* const best = list.front().get();
    Alternatives alternatives(problem, objective, *best);
    for (const auto& each : list) alternatives.Offer(each->place, each->run, each->prediction);
    const bool open = alternatives.Settle(key(list[most - 1]).first, list[most - 1]->place);
    open_walks += open ? 1 : 0;
    std::vector<CandidateRecord> found(1);
    found[0].run = best->run;
    found[0].closed_form = best->prediction;
    const auto others =
        open ? FindOthers(problem, alternatives, *predictor, 2).list : alternatives.Take();
    for (const auto& each : others) {
      found.emplace_back().run = each->run;
      found.back().closed_form = each->prediction;
    }
    std::map<std::string, double> scores;
    for (const Explanation& each : Explain(problem, objective, found, 0)) {
      scores[each.dimension] =
          PredictionKey(objective, found[each.other].run, *found[each.other].closed_form).first;
      EXPECT_NE(each.chosen, each.value);
    }
    const auto expected = AlternativeScores(problem, objective, *best, *predictor);
    ASSERT_EQ(scores.size(), expected.size()) << ToJson(problem);
    for (const auto& [dimension, score] : expected) {
      ASSERT_TRUE(scores.contains(dimension)) << dimension << " of " << ToJson(problem);
      // Plans of recomputation that differ by less need not be told apart.
      EXPECT_NEAR(scores.at(dimension), score, 2 * PlanSlack(objective) * score)
          << dimension << " of " << ToJson(problem);
    }
    ASSERT_FALSE(testing::Test::HasFailure());
    dimensions += scores.size();
  }
  EXPECT_GT(dimensions, size_t{kProblems});
  EXPECT_GT(open_walks, 0);
}

/// Remembers everything.
class NeverForgets final : public Predictor {
 public:
  explicit NeverForgets(const Problem& problem) : model_(MakeCostModelPredictor(problem)) {}
  Prediction ClosedForm(const RunConfig& run) override { return model_->ClosedForm(run); }
  Prediction DryRun(const RunConfig& run) override { return model_->DryRun(run); }
  StepBound Bound(const RunConfig& run, LayoutPart chosen, const PlanRange& plans) override {
    return model_->Bound(run, chosen, plans);
  }

 private:
  std::unique_ptr<Predictor> model_;
};

TEST(BestLayouts, DoNotDependOnWhatIsForgotten) {
  Problem problem;
  problem.model = LoadModelConfig("llama3-8b");
  problem.cluster = LoadCluster("8x8xh100");
  problem.precisions = {Precision::kBf16};
  problem.global_batch = 128;
  problem.sequence_length = 8192;
  const Shortlist list(Objective::kThroughput);
  const std::unique_ptr<Predictor> forgets = MakeCostModelPredictor(problem);
  NeverForgets remembers(problem);
  const BestLayouts best = FindBestLayouts(problem, list, *forgets, 1);
  const BestLayouts expected = FindBestLayouts(problem, list, remembers, 1);
  EXPECT_EQ(FoundIn(best).keys, FoundIn(expected).keys);
  EXPECT_EQ(best.counts, expected.counts);
}

TEST(BestLayouts, DoNotDependOnTheNumberOfThreads) {
  RandomProblems random;
  for (int i = 0; i < 5; ++i) {
    const Problem problem = random.Next();
    const Shortlist list(Objective::kThroughput, 5, 2);
    const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
    const BestLayouts alone = FindBestLayouts(problem, list, *predictor, 1);
    for (const int threads : {2, 3}) {
      const BestLayouts together = FindBestLayouts(problem, list, *predictor, threads);
      EXPECT_EQ(FoundIn(together).keys, FoundIn(alone).keys);
      EXPECT_EQ(together.counts, alone.counts);
    }
  }
}

// A predictor without bounds: everything is visited.
TEST(BestLayouts, WithoutBoundsLookAtEach) {
  FakePredictor predictor;
  const BestLayouts best =
      FindBestLayouts(TinyProblem(), Shortlist(Objective::kThroughput), predictor, 2);
  EXPECT_EQ(best.counts.visited, WalkSpace(TinyProblem(), [](const RunConfig&) {}).legal);
  EXPECT_EQ(best.counts.cut_by_bound, 0);
}

TEST(BestLayouts, AreNotLookedForWhenNobodyWaits) {
  FakePredictor predictor;
  const Shortlist list(Objective::kThroughput);
  int asked = 0;
  EXPECT_THROW(
      FindBestLayouts(TinyProblem(), list, predictor, Walkers(1, [&asked] { return ++asked > 1; })),
      WalkStopped);
  EXPECT_EQ(asked, 2);
}

// A walk that was long enough gives what it has, and says what could still be better.
TEST(BestLayouts, AWalkThatIsStoppedSaysItsGap) {
  RandomProblems random;
  int partial = 0;
  for (int i = 0; i < kProblems; ++i) {
    const Problem problem = random.Next();
    const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
    const Shortlist list(Objective::kThroughput, 5, 1);
    const BestLayouts whole = FindBestLayouts(problem, list, *predictor, 1);
    EXPECT_EQ(whole.gap, 0) << "by the bounds of what was cut";
    EXPECT_EQ(whole.counts.unexplored, 0);
    if (whole.list.empty()) continue;
    const auto best_of = [](const BestLayouts& found) {
      double best = std::numeric_limits<double>::infinity();
      for (const auto& each : found.list) {
        best = std::min(best,
                        PredictionKey(Objective::kThroughput, each->run, each->prediction).first);
      }
      return best;
    };
    int64_t told = 0;
    Walkers walkers(1);
    walkers.enough = [] { return true; };
    walkers.progress = [&told](const WalkProgress& progress) {
      EXPECT_GE(progress.settled, told);
      told = progress.settled;
    };
    const BestLayouts some = FindBestLayouts(problem, list, *predictor, walkers);
    EXPECT_FALSE(some.list.empty());
    EXPECT_EQ(some.counts.size, whole.counts.size);
    EXPECT_LE(best_of(some) * (1 - some.gap), best_of(whole) * (1 + 1e-9));
    partial += some.counts.unexplored > 0 ? 1 : 0;
    // A walk that must be whole is not.
    if (some.counts.unexplored > 0) {
      walkers.stopped = [] { return true; };
      EXPECT_THROW(FindBestLayouts(problem, list, *predictor, walkers), WalkStopped);
    }
  }
  EXPECT_GT(partial, 0);
}

TEST(BestLayouts, TheLeanestNeedsTheLeastMemory) {
  const Problem problem = TinyProblem();
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const RunConfig& run : LegalCandidates(problem)) {
    least = std::min(least, predictor->ClosedForm(run).peak_mem_bytes);
  }
  const std::optional<Shortlisted> leanest = FindLeanest(problem, *predictor, 1);
  ASSERT_TRUE(leanest.has_value());
  EXPECT_EQ(leanest->prediction.peak_mem_bytes, least);
}

TEST(BestLayouts, AGapInAWalkThatMustBeWholeIsNoticed) {
  BestLayouts best;
  RequireNoGap(best);
  best.gap = 0.01;
  EXPECT_DEATH(RequireNoGap(best), "a candidate up to 1 % better than the best may have been cut");
}

}  // namespace
}  // namespace trimtab
