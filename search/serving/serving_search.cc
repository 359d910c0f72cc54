#include "search/serving/serving_search.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "search/serving/best_case.h"

namespace trimtab {
namespace {

constexpr size_t kRound = 8;  // candidates simulated before the bounds are asked again
// An open loop's throughput is what comes, but for the time that the last answers take; below this
// share of it requests pile up.
constexpr double kSustained = 0.8;

double Offered(const ServiceLoad& load) {
  int64_t tokens = 0;
  for (const LoadRequest& each : load.requests) tokens += each.output_tokens;
  const double seconds = load.requests.back().at_s - load.requests.front().at_s;
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

/// A branch with what its candidates share.
struct PreparedBranch {
  std::unique_ptr<ServingMemoryModel> memory;
  std::unique_ptr<ServingPredictor> predictor;
};

struct Pending {
  const PreparedBranch* branch = nullptr;
  ServingCandidate candidate;
  ServingRank bound;
};

std::unique_ptr<ServingMemoryModel> MemoryModelOf(const ServingProblem& problem,
                                                  const ServingConfig& resolved) {
  const Executor executor = ExecutorOf(ModeOf(RunOf(resolved), problem.cluster), problem.cluster);
  return std::make_unique<ServingMemoryModel>(resolved, executor.kind, executor.threads);
}

/// Gives the candidate's cache what memory is left; false when that does not suffice.
bool PlanMemory(int64_t memory_bytes, ServingMemoryModel& memory, ServingEvaluation& planned) {
  ServingConfig& config = planned.candidate.config;
  const int64_t longest = CeilDiv(config.limits.sequence_length, config.block_size);
  const int64_t room = memory.BlocksWithin(memory_bytes, config.limits);
  if (room < longest) return false;
  config.cache_blocks = std::min(room, config.limits.sequences * longest);
  planned.memory = memory.Of(config.limits, config.cache_blocks);
  config = ResolveServing(config);
  return true;
}

class Search {
 public:
  Search(const ServingProblem& problem, int threads) : problem_(problem), threads_(threads) {}

  ServingSearchResult Run() {
    const auto start = std::chrono::steady_clock::now();
    ServingSpace space = WalkServingSpace(problem_);
    result_.size = space.size;
    result_.cut_by_rule = std::move(space.cut_by_rule);
    for (ServingBranch& branch : space.branches) Prepare(branch);
    std::stable_sort(pending_.begin(), pending_.end(),
                     [](const Pending& a, const Pending& b) { return a.bound < b.bound; });
    while (next_ < pending_.size() && !CutByBound(pending_[next_].bound)) Round();
    result_.cut_by_bound = std::ssize(pending_) - static_cast<int64_t>(next_);
    RequireAny();
    std::stable_sort(
        result_.ranking.begin(), result_.ranking.end(),
        [](const ServingEvaluation& a, const ServingEvaluation& b) { return a.rank < b.rank; });
    result_.simulated = std::ssize(result_.ranking);
    result_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(result_);
  }

 private:
  void Prepare(ServingBranch& branch) {
    const auto size = std::ssize(branch.candidates);
    PreparedBranch prepared;
    const ServingConfig resolved = ResolveServing(branch.config);
    prepared.memory = MemoryModelOf(problem_, resolved);
    const int64_t longest = CeilDiv(resolved.limits.sequence_length, resolved.block_size);
    const int64_t left = problem_.memory_bytes - prepared.memory->weight_bytes();
    const int64_t blocks = left / prepared.memory->block_bytes();
    if (left <= 0 || blocks < longest) {
      result_.cut_by_memory += size;
      return;
    }
    prepared.predictor = std::make_unique<ServingPredictor>(
        problem_.model, ServingLayoutOf(resolved), problem_.rates(resolved));
    BestCases best(*prepared.predictor, problem_.load, resolved.block_size);
    const PreparedBranch* kept =
        branches_.emplace_back(std::make_unique<PreparedBranch>(std::move(prepared))).get();
    for (ServingCandidate& each : branch.candidates) {
      const LoadReport report = best.Of(each.config.limits, blocks, each.replicas);
      const ServingRank bound = RankOf(problem_, each.gpus(), report);
      pending_.push_back({kept, std::move(each), bound});
    }
  }

  bool CutByBound(const ServingRank& bound) const { return best_ && bound >= *best_; }

  /// Whether a limit that `done` never reached is all that the candidate differs in.
  static bool RunsAs(const ServingEvaluation& done, const ServingCandidate& candidate) {
    const ServingConfig& a = done.candidate.config;
    const ServingConfig& b = candidate.config;
    if (done.candidate.replicas != candidate.replicas || !(a.layout == b.layout) ||
        a.weights != b.weights || a.cache != b.cache) {
      return false;
    }
    const ServingPrediction& ran = done.prediction;
    const auto free = [](int64_t limit, int64_t limit_of_done, int64_t reached) {
      return limit == limit_of_done || (reached < limit_of_done && reached <= limit);
    };
    // Whoever waited found room for the longest sequence at any time.
    const int64_t blocks = ran.most_blocks + CeilDiv(a.limits.sequence_length, a.block_size) + 1;
    return free(b.limits.sequences, a.limits.sequences, ran.most_running) &&
           free(b.limits.tokens_per_step, a.limits.tokens_per_step, ran.most_rows) &&
           (a.cache_blocks == b.cache_blocks ||
            (a.cache_blocks >= blocks && b.cache_blocks >= blocks));
  }

  void Round() {
    std::vector<ServingEvaluation> round;
    std::vector<const ServingPredictor*> predictors;
    for (; round.size() < kRound && next_ < pending_.size(); ++next_) {
      const Pending& each = pending_[next_];
      if (CutByBound(each.bound)) break;
      ServingEvaluation planned;
      planned.candidate = each.candidate;
      if (!PlanMemory(problem_.memory_bytes, *each.branch->memory, planned)) {
        ++result_.cut_by_memory;
        continue;
      }
      const auto runs_so = [&](const ServingEvaluation& done) {
        return RunsAs(done, planned.candidate);
      };
      if (std::any_of(result_.ranking.begin(), result_.ranking.end(), runs_so)) {
        ++result_.alike;
        continue;
      }
      round.push_back(std::move(planned));
      predictors.push_back(each.branch->predictor.get());
    }
    Simulate(round, predictors);
    for (ServingEvaluation& each : round) {
      each.rank = RankOf(problem_, each.candidate.gpus(), each.prediction.report);
      if (!best_ || each.rank < *best_) best_ = each.rank;
      result_.ranking.push_back(std::move(each));
    }
  }

  void Simulate(std::vector<ServingEvaluation>& round,
                const std::vector<const ServingPredictor*>& predictors) const {
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      for (size_t i; (i = next++) < round.size();) {
        const ServingCandidate& candidate = round[i].candidate;
        round[i].prediction =
            predictors[i]->Predict(candidate.config, candidate.replicas, problem_.load);
      }
    };
    std::vector<std::thread> workers;
    for (int i = 1; i < threads_; ++i) workers.emplace_back(work);
    work();
    for (std::thread& each : workers) each.join();
  }

  void RequireAny() const {
    if (!result_.ranking.empty()) return;
    std::string rules;
    for (const auto& [rule, count] : result_.cut_by_rule) {
      rules += fmt::format(", {} by {}", count, rule);
    }
    throw InfeasibleError(fmt::format(
        "none of {} candidates can serve the load within {} of memory a rank: {} do not fit{}",
        result_.size, FormatBytes(problem_.memory_bytes), result_.cut_by_memory, rules));
  }

  const ServingProblem& problem_;
  int threads_;
  ServingSearchResult result_;
  std::vector<std::unique_ptr<PreparedBranch>> branches_;
  std::vector<Pending> pending_;
  size_t next_ = 0;
  std::optional<ServingRank> best_;
};

}  // namespace

ServingRank RankOf(const ServingProblem& problem, int64_t gpus, const LoadReport& report) {
  const double strain = Strain(problem.requirements, report);
  const double rate = report.output_tokens_per_s();
  const double per_token = rate > 0 ? 1 / rate : std::numeric_limits<double>::infinity();
  ServingRank rank = {.strain = strain < 1 ? 0 : strain, .among_equals = report.e2e.mean};
  const double offered = problem.load.concurrency > 0 ? 0 : kSustained * Offered(problem.load);
  const double kept_up = offered > 0 ? std::max(per_token, 1 / offered) : per_token;
  switch (problem.objective) {
    case ServingObjective::kThroughput:
      rank.score = kept_up;
      if (offered > 0) rank.among_equals = static_cast<double>(gpus);
      return rank;
    case ServingObjective::kLatency:
      rank.score = report.e2e.mean;
      rank.among_equals = static_cast<double>(gpus);
      return rank;
    case ServingObjective::kPrice:
      rank.score = static_cast<double>(gpus) * per_token;
      return rank;
    case ServingObjective::kGpus:
      rank.score = static_cast<double>(gpus);
      rank.among_equals = kept_up;
      return rank;
  }
  return rank;
}

ServingEvaluation EvaluateServing(const ServingProblem& problem,
                                  const ServingCandidate& candidate) {
  ServingEvaluation evaluation = {.candidate = candidate};
  const ServingConfig resolved = ResolveServing(candidate.config);
  const auto memory = MemoryModelOf(problem, resolved);
  if (!PlanMemory(problem.memory_bytes, *memory, evaluation)) {
    const int64_t one = CeilDiv(resolved.limits.sequence_length, resolved.block_size);
    const ServingMemory least = memory->Of(resolved.limits, one);
    throw InfeasibleError(fmt::format(
        "needs {} of memory per rank with a cache for one sequence of {} tokens "
        "({} of weights, {} for a step); only {} is available",
        FormatBytes(least.total()), resolved.limits.sequence_length, FormatBytes(least.weights),
        FormatBytes(least.step), FormatBytes(problem.memory_bytes)));
  }
  const ServingPredictor predictor(problem.model, ServingLayoutOf(resolved),
                                   problem.rates(resolved));
  evaluation.prediction =
      predictor.Predict(evaluation.candidate.config, candidate.replicas, problem.load);
  evaluation.rank = RankOf(problem, candidate.gpus(), evaluation.prediction.report);
  return evaluation;
}

ServingSearchResult SearchServing(const ServingProblem& problem, int threads) {
  return Search(problem, threads).Run();
}

std::string WhatBinds(const ServingEvaluation& best) {
  const ServingPrediction& p = best.prediction;
  const ServingConfig& config = best.candidate.config;
  const ServingBreakdown& s = p.spent;
  struct Part {
    const char* words;
    double seconds;
  };
  const std::array<Part, 7> parts = {{{"products", s.dense_s + s.head_s},
                                      {"experts", s.experts_s},
                                      {"attention", s.attention_s},
                                      {"messages", s.messages_s},
                                      {"other ops and gaps between ops", s.other_s + s.gaps_s},
                                      {"launching steps with prompts", s.prompt_floor_s},
                                      {"the host", s.host_s}}};
  const Part& most =
      *std::max_element(parts.begin(), parts.end(),
                        [](const Part& a, const Part& b) { return a.seconds < b.seconds; });
  std::string text =
      fmt::format("{} take {:.0f} % of the steps", most.words, 100 * most.seconds / s.seconds());
  const int64_t longest = CeilDiv(config.limits.sequence_length, config.block_size);
  if (p.preemptions > 0 || p.most_blocks + longest > config.cache_blocks) {
    text += fmt::format("; the cache of {} tokens fills up ({} preemptions)",
                        config.cache_blocks * config.block_size, p.preemptions);
  }
  if (p.most_running == config.limits.sequences && p.most_waiting > 0) {
    text += fmt::format("; requests wait for one of {} places", config.limits.sequences);
  }
  if (p.busy_share < 0.9) {
    text += fmt::format("; the engines work {:.0f} % of the time", 100 * p.busy_share);
  }
  return text;
}

double TokensPerSecondAndGpu(const ServingEvaluation& of) {
  return of.prediction.report.output_tokens_per_s() / static_cast<double>(of.candidate.gpus());
}

double TokensPerSecondAndUser(const ServingEvaluation& of) {
  const double tpot = of.prediction.report.tpot.mean;
  return tpot > 0 ? 1000 / tpot : 0;
}

std::vector<const ServingEvaluation*> ServingFrontier(const ServingSearchResult& result) {
  std::vector<const ServingEvaluation*> all;
  for (const ServingEvaluation& each : result.ranking) all.push_back(&each);
  std::stable_sort(all.begin(), all.end(), [](const auto* a, const auto* b) {
    return TokensPerSecondAndGpu(*a) > TokensPerSecondAndGpu(*b);
  });
  std::vector<const ServingEvaluation*> frontier;
  for (const ServingEvaluation* each : all) {
    if (frontier.empty() ||
        TokensPerSecondAndUser(*each) > TokensPerSecondAndUser(*frontier.back()))
      frontier.push_back(each);
  }
  return frontier;
}

}  // namespace trimtab
