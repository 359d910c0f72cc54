#include "search/serving/serving_findings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "engine/base/units.h"
#include "engine/infer/serving_json.h"

namespace trimtab {

std::string WhatBinds(const ServingEvaluation& best) {
  const ServingPrediction& p = best.prediction;
  const ServingConfig& config = best.candidate.config;
  const ServingBreakdown& s = p.spent;
  struct Part {
    const char* words;
    double seconds;
  };
  const std::array<Part, 9> parts = {{{"products", s.dense_s + s.head_s},
                                      {"experts", s.experts_s},
                                      {"attention", s.attention_s},
                                      {"messages", s.messages_s},
                                      {"other ops and gaps between ops", s.other_s + s.gaps_s},
                                      {"launching steps with prompts", s.prompt_floor_s},
                                      {"the host", s.host_s},
                                      {"steps of the draft model", p.draft_s},
                                      {"copies of caches", p.copy_s}}};
  const Part& most =
      *std::max_element(parts.begin(), parts.end(),
                        [](const Part& a, const Part& b) { return a.seconds < b.seconds; });
  std::string text = fmt::format("{} take {:.0f} % of the steps", most.words,
                                 100 * most.seconds / (s.seconds() + p.draft_s + p.copy_s));
  const int64_t longest = CeilDiv(config.limits.sequence_length, config.block_size);
  const bool full = p.waits_for_room && p.most_blocks + longest > config.cache_blocks;
  if (p.preemptions > 0 || full) {
    text += fmt::format("; the cache of {} tokens fills up ({} preemptions)",
                        config.cache_blocks * config.block_size, p.preemptions);
  }
  if (p.waits_for_places) {
    text += fmt::format("; requests wait for one of {} places", config.limits.sequences);
  }
  if (p.proposed > 0) {
    text += fmt::format("; {:.0f} % of what is proposed stands",
                        100 * static_cast<double>(p.accepted) / static_cast<double>(p.proposed));
  }
  if (p.busy_share < 0.9) {
    text += fmt::format("; the engines work {:.0f} % of the time", 100 * p.busy_share);
  }
  return text;
}

std::string WhatBinds(const ServingProblem& problem, const ServingSearchResult& result,
                      const ServingEvaluation& best) {
  if (result.held_back.empty()) return WhatBinds(best);
  std::string held_back;
  for (const auto& [weights, cache] : result.held_back) {
    held_back +=
        fmt::format("{}weights={},cache={} ({:.5g}x)", held_back.empty() ? "" : ", ", Name(weights),
                    CacheName(cache), problem.quality.rises.at({weights, cache}));
  }
  return fmt::format("{}; the limit of perplexity leaves out {}, which may do better",
                     WhatBinds(best), held_back);
}

std::optional<double> PricePerMillionTokens(const ServingProblem& problem,
                                            const ServingCandidate& candidate,
                                            const LoadReport& report) {
  const double gpu_hour = problem.cluster.price_per_gpu_hour;
  const double rate = report.output_tokens_per_s();
  if (gpu_hour <= 0 || rate <= 0) return std::nullopt;
  constexpr double kSecondsPerHour = 3600;
  return 1e6 / rate / kSecondsPerHour * gpu_hour * static_cast<double>(candidate.gpus());
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
