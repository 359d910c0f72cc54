#include "engine/base/error.h"
#include "search/serving/serving_search.h"
#include "search/serving/serving_workload.h"
#include "tools/cli/serving_problem.h"
#include "tools/commands/search_command.h"
#include "tools/validation/serving_quality.h"

namespace trimtab {
namespace {

class ServingSearchCommand final : public SearchCommand {
 public:
  ServingSearchCommand() { options_.race.prove_count = 0; }

  std::string summary() const override {
    return "find the best way to serve: simulate, prove, recommend";
  }

 private:
  Words words() const override {
    return {.workload = "serving",
            .study_path = "trimtab-serving.db",
            .keeps_every_study = false,
            .objectives = {"throughput", "latency", "cost", "gpus"},
            .objective = {"what to optimise",
                          "Among those that meet the requirements: most output tokens per second, "
                          "shortest mean time to the end of an answer, least GPU time per token, "
                          "or fewest GPUs."},
            .require = {"constraints, e.g. ttft.p99<500ms,tpot.mean<30ms",
                        "Also throughput>1000, and of the formats of weights and cache "
                        "perplexity<1.02x, relative to the original weights."},
            .fix = "tp=8,weights=fp8",
            .allow = "tp=4,8,cache=fp8",
            .forbid = "weights=int4",
            .short_list = {"--for", "--model", "--cluster", "--workload", "--concurrency", "--rate",
                           "--require", "--objective", "--prove", "--report"}};
  }

  void DeclareProblem(FlagSet& flags) override {
    problem_flags_.Declare(flags);
    quality_.Declare(flags);
  }
  void DeclareSpace(FlagSet&) override {}

  const NarrowingKeys& keys() const override { return ServingKeys(); }

  void CheckFlags() override {
    requirements_ = ParseRequirements(require_);
    narrowings_ = Narrowings();
    problem_flags_.Check();
  }

  std::unique_ptr<Workload> MakeWorkload(const OutputOptions&, const SeedStudy* seed) override {
    return std::make_unique<ServingWorkload>(Problem(seed));
  }

  SpaceDescription DescribeSpace() override { return DescribeServingSpace(Problem(nullptr)); }

  ServingProblem Problem(const SeedStudy* seed) {
    ServingProblem problem = problem_flags_.Resolve(seed);
    problem.requirements = requirements_;
    problem.narrowings = narrowings_;
    problem.objective = options_.race.objective;
    problem.max_ranks = max_ranks_;
    problem.gpus = Gpus(problem.cluster);
    quality_.Resolve(problem);
    return problem;
  }

  ServingProblemFlags problem_flags_;
  ServingQualityFlags quality_;
  std::vector<Requirement> requirements_;
  std::vector<Narrowing> narrowings_;
};

}  // namespace

std::unique_ptr<Command> MakeSearchServingCommand() {
  return std::make_unique<ServingSearchCommand>();
}

}  // namespace trimtab
