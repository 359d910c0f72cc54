// Where nothing fits: what would have to change, and that it does.
#include "search/walk/relaxations.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/rules/rules.h"
#include "search/walk/best_layouts.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

bool HasLayouts(const Problem& problem) {
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
  return !FindBestLayouts(problem, Shortlist(Objective::kMemory, 1, 0), *predictor, 1).list.empty();
}

/// The relaxations of a problem that has no layout; each is checked for one.
std::vector<Relaxation> Checked(const Problem& problem) {
  EXPECT_FALSE(HasLayouts(problem));
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
  std::vector<Relaxation> relaxations = FindRelaxations(problem, *predictor, 2);
  for (const Relaxation& each : relaxations) {
    EXPECT_TRUE(HasLayouts(each.problem)) << each.what;
    EXPECT_EQ(FirstBrokenRule(each.run), nullptr) << each.what;
    const std::unique_ptr<Predictor> own = MakeCostModelPredictor(each.problem);
    EXPECT_LE(own->ClosedForm(each.run).peak_mem_bytes, each.run.memory_per_rank_bytes);
  }
  return relaxations;
}

const Relaxation* Find(const std::vector<Relaxation>& relaxations, const std::string& words) {
  const auto found = std::find_if(relaxations.begin(), relaxations.end(), [&](const auto& each) {
    return each.what.find(words) != std::string::npos;
  });
  return found == relaxations.end() ? nullptr : &*found;
}

Problem OnGpus(int64_t gpus) {
  Problem problem = TinyProblem();
  problem.model.num_layers = 4;
  problem.model.hidden_size = 512;
  problem.model.num_heads = problem.model.num_kv_heads = 8;
  problem.model.ffn_hidden_size = 2048;
  problem.model.vocab_size = 512;
  problem.cluster = LoadCluster(std::to_string(gpus) + "xh100");
  problem.precisions = {Precision::kBf16};
  problem.global_batch = 16;
  problem.sequence_length = problem.model.max_sequence_length = 2048;
  return problem;
}

TEST(Relaxations, OfTooLittleMemoryAreTheLeastThatDo) {
  Problem problem = OnGpus(1);
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
  const int64_t leanest = FindLeanest(problem, *predictor, 1)->prediction.peak_mem_bytes;
  problem.memory_per_rank_bytes = leanest - 2 * kMiB;
  const std::vector<Relaxation> relaxations = Checked(problem);

  const Relaxation* memory = Find(relaxations, "--memory-per-rank");
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory->problem.memory_per_rank_bytes, RoundUp(leanest, kMiB));
  ASSERT_NE(Find(relaxations, "2 GPUs"), nullptr) << InWords(relaxations);
  EXPECT_NE(Find(relaxations, "--optimizer-state reduced"), nullptr);
  EXPECT_EQ(Find(relaxations, "--optimizer-state minimal"), nullptr) << "the least that does";
  EXPECT_NE(Find(relaxations, "--seq 1024"), nullptr) << InWords(relaxations);
}

// More GPUs than a few doublings give, and nothing that weights would leave no memory for.
TEST(Relaxations, OfWeightsThatAreFarTooLargeAreMoreGpus) {
  Problem problem = OnGpus(1);
  problem.model.num_layers = 8;
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
  const int64_t leanest = FindLeanest(problem, *predictor, 1)->prediction.peak_mem_bytes;
  problem.memory_per_rank_bytes = leanest / 20;
  const std::vector<Relaxation> relaxations = Checked(problem);
  const Relaxation* gpus = Find(relaxations, " GPUs");
  ASSERT_NE(gpus, nullptr) << InWords(relaxations);
  EXPECT_GT(gpus->problem.cluster.max_ranks, 16);
  EXPECT_EQ(Find(relaxations, "--seq"), nullptr) << InWords(relaxations);
  EXPECT_EQ(Find(relaxations, "--gbs"), nullptr) << InWords(relaxations);
}

// No number of GPUs is large enough: it is not looked for without end.
TEST(Relaxations, OfHardlyAnyMemoryAreNoMillionsOfGpus) {
  Problem problem = OnGpus(1);
  problem.memory_per_rank_bytes = 1024;
  const std::vector<Relaxation> relaxations = Checked(problem);
  EXPECT_EQ(Find(relaxations, " GPUs"), nullptr) << InWords(relaxations);
}

// Halving 5000 four times would leave some of the positions unused, too.
TEST(Relaxations, OfTooFewPositionsAreAllThatThereAre) {
  Problem problem = OnGpus(1);
  problem.model.position = PositionKind::kLearned;
  problem.model.max_sequence_length = 300;
  problem.sequence_length = 5000;
  const std::vector<Relaxation> relaxations = Checked(problem);
  EXPECT_NE(Find(relaxations, "--seq 300"), nullptr) << InWords(relaxations);
}

TEST(Relaxations, OfRulesNameABatchAndANumberOfGpus) {
  Problem problem = OnGpus(7);
  problem.model.num_layers = 2;
  problem.sequence_length = 15;
  const std::vector<Relaxation> relaxations = Checked(problem);
  EXPECT_EQ(Find(relaxations, "--memory-per-rank"), nullptr) << "it is not memory that binds";
  EXPECT_NE(Find(relaxations, "--gbs 14"), nullptr) << InWords(relaxations);
  EXPECT_NE(Find(relaxations, "4 GPUs"), nullptr) << InWords(relaxations);
}

// Of a cluster that has more than were asked for.
TEST(Relaxations, OfAChoiceOfGpusAreOthersOfTheCluster) {
  Problem problem = OnGpus(8);
  problem.model.num_layers = 2;
  problem.sequence_length = 15;
  problem.gpus = {3};
  const std::vector<Relaxation> relaxations = Checked(problem);
  EXPECT_NE(Find(relaxations, "--gpus 2"), nullptr) << InWords(relaxations);
  EXPECT_EQ(Find(relaxations, "16 GPUs"), nullptr) << InWords(relaxations);
}

TEST(Relaxations, OfAChoiceOfGpusAreWholeNodes) {
  Problem problem = OnGpus(8);
  problem.cluster = LoadCluster("4x6xh100");
  problem.model.num_layers = 12;
  problem.global_batch = 24;
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
  problem.gpus = {1};
  problem.memory_per_rank_bytes =
      FindLeanest(problem, *predictor, 1)->prediction.peak_mem_bytes / 3;
  for (const Relaxation& each : Checked(problem)) {
    for (const int64_t gpus : each.problem.gpus) {
      EXPECT_TRUE(gpus <= 6 || gpus % 6 == 0) << each.what;
    }
  }
  problem.gpus.clear();
  problem.max_ranks = 1;
  const std::vector<Relaxation> relaxations = Checked(problem);
  const Relaxation* more = Find(relaxations, "--max-ranks");
  ASSERT_NE(more, nullptr) << InWords(relaxations);
  EXPECT_EQ(more->what, fmt::format("--max-ranks {}", more->problem.max_ranks));
  EXPECT_EQ(Find(relaxations, "--gpus"), nullptr) << InWords(relaxations);
}

TEST(Relaxations, OfMemoryLeaveTheHeadroom) {
  Problem problem = OnGpus(1);
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
  const int64_t leanest = FindLeanest(problem, *predictor, 1)->prediction.peak_mem_bytes;
  problem.memory_per_rank_bytes = leanest + kMiB;
  problem.requirements = ParseTrainingRequirements("headroom>=64MiB");
  const std::vector<Relaxation> relaxations = Checked(problem);
  const Relaxation* memory = Find(relaxations, "--memory-per-rank");
  ASSERT_NE(memory, nullptr) << InWords(relaxations);
  EXPECT_EQ(memory->problem.memory_per_rank_bytes, RoundUp(leanest + 64 * kMiB, kMiB));
}

TEST(Relaxations, NameTheNarrowingThatForbidsAll) {
  Problem problem = OnGpus(2);
  problem.narrowings = ParseNarrowings({"recompute=none", "pp=1"}, "--fix", /*forbidden=*/false);
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
  problem.memory_per_rank_bytes =
      FindLeanest(problem, *predictor, 1)->prediction.peak_mem_bytes * 9 / 10;
  const std::vector<Relaxation> relaxations = Checked(problem);
  const Relaxation* without = Find(relaxations, "without --fix recompute=none");
  ASSERT_NE(without, nullptr) << InWords(relaxations);
  EXPECT_EQ(without->problem.narrowings.size(), 1u);
}

TEST(Relaxations, OfWhatNothingHelpsSaySo) {
  EXPECT_EQ(InWords(std::vector<Relaxation>{}), "no single change was found that would help");
}

TEST(Relaxations, OfferNoMemoryThatTheGpuHasNot) {
  Problem problem = OnGpus(1);
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(problem);
  problem.cluster.memory_bytes = FindLeanest(problem, *predictor, 1)->prediction.peak_mem_bytes / 2;
  EXPECT_EQ(Find(Checked(problem), "--memory-per-rank"), nullptr);
}

}  // namespace
}  // namespace trimtab
