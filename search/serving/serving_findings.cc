#include "search/serving/serving_findings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/base/units.h"
#include "engine/infer/serving_json.h"

namespace trimtab {

std::string WhatBinds(const ServingEvaluation& candidate) {
  const ServingPrediction& p = candidate.prediction;
  const ServingConfig& config = candidate.candidate.config;
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
    text += fmt::format("; {:.0f} % of what is proposed is accepted",
                        100 * static_cast<double>(p.accepted) / static_cast<double>(p.proposed));
  }
  if (p.busy_share < 0.9) {
    text += fmt::format("; the engines work {:.0f} % of the time", 100 * p.busy_share);
  }
  return text;
}

std::map<std::string, double> BreakdownOf(const ServingPrediction& prediction) {
  const ServingBreakdown& parts = prediction.spent;
  return {{"products", parts.dense_s + parts.head_s},
          {"experts", parts.experts_s},
          {"attention", parts.attention_s},
          {"messages", parts.messages_s},
          {"other_ops", parts.other_s},
          {"gaps", parts.gaps_s},
          {"prompt_launches", parts.prompt_floor_s},
          {"host", parts.host_s},
          {"draft", prediction.draft_s},
          {"copies", prediction.copy_s}};
}

std::optional<double> PricePerMillionTokens(const Cluster& cluster, int64_t gpus,
                                            double tokens_per_s) {
  const double gpu_hour = cluster.price_per_gpu_hour;
  if (gpu_hour <= 0 || tokens_per_s <= 0) return std::nullopt;
  constexpr double kSecondsPerHour = 3600;
  return 1e6 / tokens_per_s / kSecondsPerHour * gpu_hour * static_cast<double>(gpus);
}

std::vector<std::string> Relaxations(const ServingProblem& problem, const ServingConfig& config,
                                     const LoadReport& report) {
  const Service service = {.report = report, .perplexity_rise = problem.PerplexityRiseOf(config)};
  std::vector<std::string> relaxed;
  for (const Requirement& each : problem.requirements) {
    if (each.Strain(service) >= 1) relaxed.push_back(each.Relaxed(each.ValueIn(service)));
  }
  return relaxed;
}

ServiceSpeed SpeedOf(const LoadReport& report, int64_t gpus) {
  return {.per_gpu = report.output_tokens_per_s() / static_cast<double>(gpus),
          .per_user = report.tpot.mean > 0 ? 1000 / report.tpot.mean : 0};
}

std::vector<size_t> ServingFrontier(const std::vector<ServiceSpeed>& services) {
  std::vector<size_t> all(services.size());
  std::iota(all.begin(), all.end(), size_t{0});
  std::ranges::stable_sort(
      all, [&](size_t a, size_t b) { return services[a].per_gpu > services[b].per_gpu; });
  std::vector<size_t> frontier;
  for (const size_t each : all) {
    if (frontier.empty() || services[each].per_user > services[frontier.back()].per_user) {
      frontier.push_back(each);
    }
  }
  return frontier;
}

}  // namespace trimtab
