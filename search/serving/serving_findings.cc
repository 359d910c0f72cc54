#include "search/serving/serving_findings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/base/units.h"
#include "engine/infer/serving_json.h"

namespace trimtab {

namespace {

/// A part of the steps' time: its key in reports, and its words, which several may share.
struct Part {
  const char* key;
  const char* words;
  double seconds;
};

std::array<Part, 10> PartsOf(const ServingPrediction& prediction) {
  const ServingBreakdown& parts = prediction.spent;
  static constexpr char kOther[] = "other ops and gaps between ops";
  return {{{"products", "products", parts.dense_s + parts.head_s},
           {"experts", "experts", parts.experts_s},
           {"attention", "attention", parts.attention_s},
           {"messages", "messages", parts.messages_s},
           {"other_ops", kOther, parts.other_s},
           {"gaps", kOther, parts.gaps_s},
           {"prompt_launches", "launching steps with prompts", parts.prompt_floor_s},
           {"host", "the host", parts.host_s},
           {"draft", "steps of the draft model", prediction.draft_s},
           {"copies", "copies of caches", prediction.copy_s}}};
}

}  // namespace

std::string WhatBinds(const ServingEvaluation& candidate) {
  const ServingPrediction& p = candidate.prediction;
  const ServingConfig& config = candidate.candidate.config;
  double all = 0;
  std::map<std::string, double> seconds;  // by words
  for (const Part& part : PartsOf(p)) {
    all += part.seconds;
    seconds[part.words] += part.seconds;
  }
  const auto& [words, most] =
      *std::ranges::max_element(seconds, {}, [](const auto& part) { return part.second; });
  std::string text = fmt::format("{} take {:.0f} % of the steps", words, 100 * most / all);
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
  std::map<std::string, double> seconds;
  for (const Part& part : PartsOf(prediction)) seconds[part.key] = part.seconds;
  return seconds;
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
