// Searches on this machine's cores against races of every legal layout: how good is what is
// recommended, how many visits did it take, and what does the search cost beside its trials?
//
// A problem is a small model and a global batch, on up to four ranks. Its space is narrowed
// (kNarrowing) to what can be measured whole. The search may visit as often as a tenth of the legal
// layouts are, unless told otherwise: what is reached with few visits is the question. After it,
// with its proof, every legal layout is visited in rounds, each in an order of its own; then the
// fastest ones and the recommended one race once more, the finalists. The fastest of many looks
// faster than it is by the very visits that chose it; so the final's odd rounds, with the rounds
// before them, choose the best, and its even rounds say how much faster it is than what was
// recommended; and the other way round. The mean of both counts. The fit of the search's own races
// takes off the machine's speed (profiler/race_fit.h).
//
//   bazel build //tools:trimtab //tests/search:recommendation_benchmark
//   bazel-bin/tools/trimtab calibrate --quick --out machine.json
//   bazel-bin/tests/search/recommendation_benchmark --profile machine.json [--problems 1,2,...,15]
//       [--visits-share 0.1] [--rounds 2] [--final-rounds 8] [--minutes 7]
//       [--trimtab bazel-bin/tools/trimtab]
//
// `minutes`: of a problem, with its search, which takes what it needs; rounds of the race that do
// not fit any more are left out.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/families/load_config.h"
#include "search/driver.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSequence = 128;
constexpr int64_t kMostRanks = 4;
constexpr size_t kFinalists = 10;   // the fastest of all rounds, beside the recommended layout
constexpr int64_t kLeastFinal = 4;  // rounds: in each half two, for only those show the scatter
constexpr double kConfidence = 0.95;
constexpr double kAllRoundsShare = 0.7;  // of the minutes; the rest is for the final
// Cut at its commas, as the command line does it.
const std::vector<std::string> kNarrowing = {"zero=0",
                                             "1",
                                             "3",
                                             "schedule=1f1b",
                                             "zero-bubble",
                                             "recompute=none",
                                             "cp_comm_type=p2p",
                                             "reshard_after_forward=1",
                                             "etp=1"};

/// A family of models, cut down to a size of which a step takes a tenth of a second.
struct SmallModel {
  const char* preset;
  int64_t layers, hidden, ffn, vocabulary;
};
constexpr SmallModel kModels[] = {{"gpt2-124m", 4, 128, 512, 1024},
                                  {"llama2-7b", 4, 192, 512, 1024},
                                  {"mixtral-8x7b", 4, 128, 192, 1024},
                                  {"llama3-8b", 2, 256, 896, 4096},
                                  {"bloom-560m", 8, 96, 384, 2048}};
constexpr int64_t kBatches[] = {4, 8, 16};
constexpr size_t kProblems = std::size(kModels) * std::size(kBatches);

struct BenchmarkOptions {
  std::vector<size_t> problems;  // from 1 on; empty = all
  double visits_share = 0.1;     // a search's most visits, of the legal layouts; 0 = no limit
  int64_t rounds = 2;
  int64_t final_rounds = 8;
  double minutes = 7;
  std::string profile;
  std::string program = "bazel-bin/tools/trimtab";  // whose workers make the visits
};

Problem ProblemOf(size_t number, const Cluster& cluster) {
  const SmallModel& small = kModels[(number - 1) / std::size(kBatches)];
  Problem problem;
  problem.model = LoadModelConfig(small.preset);
  ModelConfig& model = problem.model;
  model.num_layers = small.layers;
  model.hidden_size = small.hidden;
  model.ffn_hidden_size = small.ffn;
  model.vocab_size = small.vocabulary;
  model.num_kv_heads = model.num_kv_heads < model.num_heads ? 2 : 4;
  model.num_heads = 4;
  model.max_sequence_length = kSequence;
  if (model.moe.used()) {
    model.moe.num_experts = 4;
    model.moe.router_topk = 2;
    model.moe.ffn_hidden_size = small.ffn;
  }
  problem.cluster = cluster;
  problem.global_batch = kBatches[(number - 1) % std::size(kBatches)];
  problem.sequence_length = kSequence;
  problem.max_ranks = kMostRanks;
  problem.narrowings = ParseNarrowings(kNarrowing, "--allow", false);
  return problem;
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What the search says of its time.
class Times : public SearchEvents {
 public:
  void OnRaceEnd(double trials, double own) override {
    trials_s = trials;
    own_s = own;
  }
  double trials_s = 0;
  double own_s = 0;  // while trials ran
};

/// Visits to the layouts of a problem, by workers as a search has them.
class ExhaustiveRace {
 public:
  ExhaustiveRace(const TrainingSearch& options, const std::string& program,
                 std::vector<RunConfig> layouts, Clock::time_point start)
      : options_(options),
        layouts_(std::move(layouts)),
        runner_({.program = program}),
        start_(start) {}

  /// Visits `entrants` in up to `rounds` rounds, `least` of them also after `deadline_s`. Returns
  /// the visits; their entrants are numbered in the order given.
  std::vector<RaceVisit> Visit(const std::vector<size_t>& entrants, int64_t rounds, int64_t least,
                               double deadline_s) {
    std::vector<RaceVisit> visits;
    std::vector<size_t> order(entrants.size());
    std::iota(order.begin(), order.end(), size_t{0});
    double longest_s = 0;
    for (int64_t round = 1; round <= rounds; ++round) {
      const double began_s = SecondsSince(start_);
      if (round > least && began_s + longest_s > deadline_s) break;
      std::shuffle(order.begin(), order.end(), random_);
      for (const size_t i : order) {
        const RunConfig& run = layouts_[entrants[i]];
        visits.push_back(RaceVisitOf(i, round, run, Measured(run)));
      }
      longest_s = std::max(longest_s, SecondsSince(start_) - began_s);
    }
    return visits;
  }

 private:
  Measurement Measured(const RunConfig& run) {
    const TrialRequest request =
        options_.RequestFor(TrainingJob(run, options_.visit, CandidateKey(run)),
                            options_.problem.cluster, fmt::format("visit-{}", ++attempts_));
    const TrialOutcome outcome = runner_.Run(request, [] { return false; });
    if (outcome.state != TrialState::kDone) {
      throw Error(ExitCode::kInternal,
                  fmt::format("{}: {}: {}", request.job.key, Name(outcome.state), outcome.message));
    }
    return ReadResults(request.results_path).back().measurement.value();
  }

  TrainingSearch options_;
  std::vector<RunConfig> layouts_;
  ProcessTrialRunner runner_;
  Clock::time_point start_;
  std::mt19937_64 random_{1};
  int64_t attempts_ = 0;
};

/// The first finalist, which was recommended, beside the best one.
struct Comparison {
  size_t best = 0;    // a finalist
  double behind = 0;  // logarithm of the recommended one's step time over the best one's
  double unsure = 0;  // half-width of its interval
};

/// `of_all`: visits to all `layouts` of the problem; `last`: to the finalists, which `finalists`
/// numbers among the layouts. Those of `last` in odd rounds choose the best if `choosing` is 1,
/// those in even rounds if it is 0, together with `of_all`; the rest compares it.
Comparison Compare(const std::vector<RaceVisit>& of_all, const std::vector<RaceVisit>& last,
                   const std::vector<size_t>& finalists, size_t layouts,
                   const std::map<Mode, ProbeReference>& references, int64_t choosing) {
  std::vector<RaceVisit> choice = of_all;
  std::vector<RaceVisit> comparison;
  for (const RaceVisit& visit : last) {
    if (visit.round % 2 != choosing) {
      comparison.push_back(visit);
      continue;
    }
    choice.push_back(visit);
    choice.back().entrant = finalists.at(visit.entrant);
    choice.back().round += of_all.back().round;
  }
  Comparison result;
  const RaceFit chooser(choice, layouts, references, kConfidence);
  for (size_t i = 1; i < finalists.size(); ++i) {
    const double best = chooser.StepTime(finalists[result.best]).log;
    if (chooser.StepTime(finalists[i]).log < best) result.best = i;
  }
  const RaceFit fit(comparison, finalists.size(), references, kConfidence);
  result.behind = fit.StepTime(0).log - fit.StepTime(result.best).log;
  const double variance = fit.Covariance(0, 0) + fit.Covariance(result.best, result.best) -
                          2 * fit.Covariance(0, result.best);
  result.unsure = fit.normal_quantile() * std::sqrt(std::max(variance, 0.0));
  return result;
}

/// The figures of one problem.
struct Figures {
  double speed = 0;         // of the recommended layout, as a share of the best one's
  double visits_share = 0;  // of the legal layouts
  double own_share = 0;     // of the trials' time
};

Figures RunProblem(size_t number, const BenchmarkOptions& benchmark, const Cluster& cluster) {
  const auto start = Clock::now();
  TrainingSearch options;
  options.problem = ProblemOf(number, cluster);
  options.study_path = ScratchPath(fmt::format("recommendation{}.db", number));
  options.study.program_version = "benchmark";
  const std::vector<RunConfig> layouts = LegalCandidates(options.problem);
  const auto legal = static_cast<double>(layouts.size());
  fmt::print("{}: {}, batch {}, {} legal layouts\n", number, options.problem.model.name,
             options.problem.global_batch, layouts.size());
  std::fflush(stdout);
  if (benchmark.visits_share > 0) {
    options.most_visits =
        std::max(int64_t{1}, static_cast<int64_t>(benchmark.visits_share * legal));
  }
  const auto search_start = Clock::now();
  const std::unique_ptr<Predictor> predictor = MakeCostModelPredictor(options.problem);
  ProcessTrialRunner runner(
      {.program = benchmark.program, .parked_bytes = cluster.memory_bytes / 2});
  Times times;
  const SearchResult result = RunSearch(options, *predictor, runner, times);
  const double search_s = SecondsSince(search_start);
  int64_t visits = 0;
  for (const CandidateRecord& each : result.candidates) {
    visits += static_cast<int64_t>(each.visits.size());
    runner.Release(each.key);
  }

  const std::string& recommended_key = result.recommended_candidate().key;
  const auto recommended = static_cast<size_t>(
      std::find_if(layouts.begin(), layouts.end(),
                   [&](const RunConfig& run) { return CandidateKey(run) == recommended_key; }) -
      layouts.begin());

  options.study_path = ScratchPath(fmt::format("recommendation{}.race", number));
  options.visit.min_seconds = 0.25;
  options.visit.breakdown_visit = 0;
  ExhaustiveRace race(options, benchmark.program, layouts, start);
  std::vector<size_t> all(layouts.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const auto references = ProbeReferences(cluster.profile);
  const double deadline_s = 60 * benchmark.minutes;
  const std::vector<RaceVisit> of_all =
      race.Visit(all, benchmark.rounds, 1, kAllRoundsShare * deadline_s);
  const RaceFit fit(of_all, all.size(), references, kConfidence);
  std::sort(all.begin(), all.end(),
            [&](size_t a, size_t b) { return fit.StepTime(a).log < fit.StepTime(b).log; });
  const auto place = std::find(all.begin(), all.end(), recommended) - all.begin();

  std::vector<size_t> finalists = {recommended};
  for (const size_t each : all) {
    if (finalists.size() <= kFinalists && each != recommended) finalists.push_back(each);
  }
  const std::vector<RaceVisit> last =
      race.Visit(finalists, benchmark.final_rounds, kLeastFinal, deadline_s);
  const Comparison halves[] = {Compare(of_all, last, finalists, all.size(), references, 1),
                               Compare(of_all, last, finalists, all.size(), references, 0)};
  const double behind = (halves[0].behind + halves[1].behind) / 2;
  const double unsure = std::hypot(halves[0].unsure, halves[1].unsure) / 2;

  const Figures figures = {.speed = std::exp(-behind),
                           .visits_share = static_cast<double>(visits) / legal,
                           .own_share = times.own_s / times.trials_s};
  fmt::print(
      "  recommended {:.1f} % of the best's speed (+- {:.1f}); place {} in {} rounds of all, then "
      "{} of {} finalists\n"
      "  {} visits, {:.1f} % of the legal layouts, of {} candidates; race {}{}, a loss of {:.2f} % "
      "expected\n"
      "  trials {}, the search itself {} ({:.2f} %), before the race and after it {}\n"
      "  {}\n  {} (the best)\n  {} (the best, by the other half)\n  {:.0f} s in all\n",
      100 * figures.speed, 100 * unsure, place + 1, of_all.size() / all.size(),
      last.size() / finalists.size(), finalists.size(), visits, 100 * figures.visits_share,
      result.space.size, Name(result.race.end), result.partial ? ": " + result.partial_reason : "",
      100 * result.race.expected_loss.value_or(1), FormatSeconds(times.trials_s),
      FormatSeconds(times.own_s), 100 * figures.own_share,
      FormatSeconds(search_s - times.trials_s - times.own_s), recommended_key,
      CandidateKey(layouts[finalists[halves[0].best]]),
      CandidateKey(layouts[finalists[halves[1].best]]), SecondsSince(start));
  std::fflush(stdout);
  return figures;
}

int Main(const BenchmarkOptions& benchmark) {
  const Cluster cluster = LoadCluster("local", benchmark.profile);
  std::vector<size_t> problems = benchmark.problems;
  if (problems.empty()) {
    problems.resize(kProblems);
    std::iota(problems.begin(), problems.end(), size_t{1});
  }
  fmt::print("narrowed to {}, at most {} ranks\n", fmt::join(kNarrowing, ","), kMostRanks);
  std::fflush(stdout);
  double speed = 0;
  double at_most = 0;  // the same, with none better than the best
  double most_visits = 0;
  double own = 0;
  for (const size_t number : problems) {
    const Figures figures = RunProblem(number, benchmark, cluster);
    speed += figures.speed;
    at_most += std::min(figures.speed, 1.0);
    most_visits = std::max(most_visits, figures.visits_share);
    own = std::max(own, figures.own_share);
  }
  const auto count = static_cast<double>(problems.size());
  fmt::print(
      "\nof {} problems: recommended at {:.1f} % of the best's speed in the mean ({:.1f} % where "
      "what "
      "looks faster than the best counts as fast as it); visits at most {:.1f} % of the legal "
      "layouts; the search itself at most {:.2f} % of the trials' time\n",
      problems.size(), 100 * speed / count, 100 * at_most / count, 100 * most_visits, 100 * own);
  return 0;
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  trimtab::BenchmarkOptions options;
  CLI::App app("searches against races of every legal layout");
  app.add_option("--problems", options.problems, "their numbers, from 1 on; all if left out")
      ->delimiter(',')
      ->check(CLI::Range(size_t{1}, trimtab::kProblems));
  app.add_option("--visits-share", options.visits_share,
                 "a search's most visits, as a share of the legal layouts; 0 = no limit")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--rounds", options.rounds, "of every legal layout")->check(CLI::PositiveNumber);
  app.add_option("--final-rounds", options.final_rounds, "of the fastest")
      ->check(CLI::Range(trimtab::kLeastFinal, int64_t{99}));
  app.add_option("--minutes", options.minutes, "that a problem may take");
  app.add_option("--profile", options.profile, "hardware profile of this machine")->required();
  app.add_option("--trimtab", options.program, "the program whose workers make the visits");
  CLI11_PARSE(app, argc, argv);
  return trimtab::Main(options);
}
