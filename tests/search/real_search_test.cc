// A search with the cost model and the engine as they are; only the child processes are left out.

#include <gtest/gtest.h>

#include <memory>
#include <sstream>

#include "engine/base/error.h"
#include "profiler/worker.h"
#include "search/driver.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

/// TinyProblem on real prices, one thread per rank: what is tested does not depend on the speed.
TrainingSearch RealSearch(const std::string& study) {
  TrainingSearch options = TinySearch(ScratchPath(study));
  options.problem.cluster.profile = BuiltinProfile("cpu");
  options.problem.cluster.cores = 1;
  options.visit.warmup = 0;
  options.visit.steps = options.visit.max_steps = 1;
  options.visit.min_seconds = 0;
  options.visit.breakdown_visit = 0;
  options.race.most_rounds = 1;
  return options;
}

/// One step, as RealSearch asks for.
constexpr MeasureOptions kVisit = {
    .warmup = 0, .steps = 1, .max_steps = 1, .min_seconds = 0, .breakdown_visit = 0};

/// Measures in this process.
class InProcessRunner : public TrialRunner {
 public:
  TrialOutcome Run(const TrialRequest& request, const std::function<bool()>&) override {
    std::istringstream commands("visit " + request.attempt + "\n");
    const TrialResult result =
        RunWorker(request.results_path, commands, TrainingVisits(RunOfTrial(request), kVisit))
            .value();
    return {.state = result.state, .exit_code = 0, .message = result.message, .seconds = 0};
  }
};

TEST(RealSearch, PredictedPeaksAreMeasuredToTheByte) {
  TrainingSearch options = RealSearch("real.db");
  options.dry_run_count = 200;
  options.race.prove_count = 12;
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(options.problem);
  InProcessRunner runner;
  SearchEvents events;
  const SearchResult result = RunSearch(options, *predictor, runner, events);

  EXPECT_EQ(result.accuracy.proved, options.race.prove_count);
  EXPECT_EQ(result.accuracy.max_peak_mem_error, 0.0);
  const double first_loss = result.recommended_candidate().measured->losses.at(0);
  int64_t dry_runs = 0;
  for (const CandidateRecord& candidate : result.candidates) {
    if (!candidate.dry_run) continue;
    ++dry_runs;
    SCOPED_TRACE(candidate.key);
    EXPECT_EQ(candidate.closed_form->peak_mem_bytes, candidate.dry_run->peak_mem_bytes);
    if (!candidate.measured) continue;
    EXPECT_NEAR(candidate.measured->losses.at(0), first_loss, 1e-5 * first_loss);
  }
  EXPECT_EQ(dry_runs, options.dry_run_count);
}

TEST(RealSearch, ALimitAtThePredictedPeakIsEnough) {
  TrainingSearch options = RealSearch("limit.db");
  options.race.objective = Objective::kMemory;
  options.race.prove_count = 1;
  InProcessRunner runner;
  SearchEvents events;
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(options.problem);
  const SearchResult free = RunSearch(options, *predictor, runner, events);
  const int64_t least = free.recommended().predicted_peak_mem_bytes;

  options.problem.memory_per_rank_bytes = least;
  options.study_path = ScratchPath("limited.db");
  const SearchResult limited = RunSearch(options, *predictor, runner, events);
  EXPECT_EQ(limited.recommended().measured_peak_mem_bytes, least);

  options.problem.memory_per_rank_bytes = least - 1;
  options.study_path = ScratchPath("too_little.db");
  EXPECT_THROW(RunSearch(options, *predictor, runner, events), InfeasibleError);
}

}  // namespace
}  // namespace trimtab
