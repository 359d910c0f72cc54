// What an earlier search learned of a machine, for another problem on it.
#include "search/seed_study.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "search/driver.h"
#include "search/race/correct.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

SearchResult Search(const TrainingSearch& options) {
  FakePredictor predictor;
  FakeRunner runner;
  SearchEvents events;
  return RunSearch(options, predictor, runner, events);
}

TEST(SeedStudy, HasThePricesAndTheStepsOfTheSearch) {
  const SearchResult result = Search(TinySearch(ScratchPath("seed.db")));
  const SeedStudy seed = LoadSeedStudy(result.study_path);
  EXPECT_EQ(seed.residuals, ResidualsOf(result.candidates));
  EXPECT_GE(seed.residuals.size(), 3u);
  EXPECT_EQ(seed.profile, TinyProblem().cluster.profile);
}

TEST(SeedStudy, CorrectsThePredictionsOfAnotherProblem) {
  const std::string path = Search(TinySearch(ScratchPath("first.db"))).study_path;
  TrainingSearch other = TinySearch(ScratchPath("second.db"));
  other.problem.global_batch *= 2;
  other.race.prove_count = 0;
  TrainingSearch seeded = other;
  seeded.study_path = ScratchPath("third.db");
  seeded.study.seed = LoadSeedStudy(path).residuals;
  const auto corrected = [](const SearchResult& result) {
    return std::count_if(result.candidates.begin(), result.candidates.end(),
                         [](const CandidateRecord& each) { return each.corrected; });
  };
  EXPECT_EQ(corrected(Search(other)), 0);
  EXPECT_GT(corrected(Search(seeded)), 0);
  EXPECT_GT(corrected(ResultFromStudy(*Study::OpenExisting(seeded.study_path))), 0);
}

TEST(SeedStudy, OfAnotherMachineIsRefused) {
  const SeedStudy seed = LoadSeedStudy(Search(TinySearch(ScratchPath("theirs.db"))).study_path);
  Cluster cluster = TinyProblem().cluster;
  seed.RequireSameMachine(cluster);
  cluster.cores = 64;
  try {
    seed.RequireSameMachine(cluster);
    FAIL() << "a machine of 64 cores";
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()),
              fmt::format("{}: a study of another machine: cluster.cores is 2 there and 64 here",
                          seed.path));
  }
}

TEST(SeedStudy, ThatIsNotThereIsRefused) {
  EXPECT_THROW(LoadSeedStudy(ScratchPath("nowhere.db")), InputError);
}

}  // namespace
}  // namespace trimtab
