// The layouts that the quickstart's search enumerates train to the same five losses as one rank: a
// sample of them, or under TRIMTAB_EXHAUSTIVE every one.
//
// The problem is read from the quickstart itself. Its model is slimmed (width, depth, sequence) so
// that a hundred layouts train in seconds; what decides a layout - heads, global batch, vocabulary,
// ranks - stays as it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <random>

#include "engine/base/units.h"
#include "engine/config/layout/recompute.h"
#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"
#include "search/space/space.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr size_t kSteps = 5;
constexpr double kTolerance = 1e-5;  // relative; fp32 sums in another order
constexpr int64_t kSlimLayers = 4;   // as many as there may be pipeline stages

/// The KEY=VALUE lines of the script.
std::map<std::string, std::string> QuickstartSettings() {
  std::map<std::string, std::string> settings;
  std::ifstream script("tools/quickstart");
  for (std::string line; std::getline(script, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos || line.find_first_of(" \"$(") < equals) continue;
    settings[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return settings;
}

Problem QuickstartProblem() {
  const std::map<std::string, std::string> settings = QuickstartSettings();
  Problem problem;
  problem.model = LoadModelConfig(settings.at("MODEL"));
  problem.cluster = LoadCluster("local");
  problem.cluster.cores = 2;
  problem.cluster.max_ranks = 4;  // what two cores may run in process
  problem.global_batch = std::stoll(settings.at("BATCH"));
  problem.sequence_length = std::stoll(settings.at("SEQ"));
  problem.memory_per_rank_bytes = ParseBytes(settings.at("MEMORY"), "MEMORY");
  return problem;
}

RunConfig Slimmed(RunConfig run) {
  run.model.hidden_size = run.model.num_heads * 8;
  run.model.ffn_hidden_size = 2 * run.model.hidden_size;
  run.model.num_layers = kSlimLayers;
  const int64_t recomputed = run.layout.recompute[0].num_layers;
  if (recomputed > 0) {
    const int64_t layers = CeilDiv(kSlimLayers, run.layout.pp * run.layout.vp);
    run.layout.recompute = FullOf(1 + (recomputed - 1) % layers, layers);
  }
  run.sequence_length = 16;
  run.threads_per_rank = 1;
  run.steps = kSteps;
  run.optimizer.learning_rate = 1e-2;
  run.optimizer.warmup_steps = 2;
  return run;
}

#ifdef TRIMTAB_EXHAUSTIVE
constexpr size_t kSample = std::numeric_limits<size_t>::max();
#else
constexpr size_t kSample = 100;
#endif

TEST(QuickstartLayoutsTest, LayoutsTrainLikeOneRank) {
  const Problem problem = QuickstartProblem();
  std::vector<RunConfig> candidates;
  WalkSpace(problem, [&](const RunConfig& run) { candidates.push_back(run); });
  RunConfig reference = Slimmed(candidates.front());
  reference.layout = {};
  const auto source = MakeSyntheticSource(reference.model.vocab_size, /*seed=*/9);
  const std::vector<double> losses = TrainOnRanks(reference, *source, kSteps).losses;

  const size_t all = candidates.size();
  std::shuffle(candidates.begin(), candidates.end(), std::mt19937(1));
  candidates.resize(std::min(all, kSample));
  for (const RunConfig& candidate : candidates) {
    const RunConfig run = Slimmed(candidate);
    ASSERT_EQ(FirstBrokenRule(run), nullptr) << CandidateKey(run);
    const std::vector<double> actual = TrainOnRanks(run, *source, kSteps).losses;
    for (size_t step = 0; step < kSteps; ++step) {
      ASSERT_NEAR(actual[step], losses[step], kTolerance * losses[step])
          << CandidateKey(run) << " step " << step;
    }
  }
  std::cout << "trained " << candidates.size() << " of " << all << " layouts\n";
  EXPECT_GE(candidates.size(), 50u) << "the quickstart searches a real space";
}

}  // namespace
}  // namespace trimtab
