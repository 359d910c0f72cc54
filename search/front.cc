#include "search/front.h"

#include <algorithm>
#include <map>
#include <utility>

#include "cost_model/goodput.h"

namespace trimtab {

namespace {

/// Whether the figure of `a` is the one to go by: measured before predicted, then the faster.
bool GoesBefore(const RankingRow& a, const RankingRow& b) {
  const auto rank = [](const RankingRow& row) {
    return std::pair(row.measured_tokens_per_s.has_value(), row.figure.tokens_per_s);
  };
  return rank(a) > rank(b);
}

}  // namespace

FrontRow TrainingWith(const std::vector<RankingRow>& ranking, size_t row,
                      const std::vector<CandidateRecord>& candidates, double tokens,
                      const Cluster& cluster) {
  constexpr double kSecondsOfHour = 3600;
  const RunConfig& run = candidates[ranking[row].candidate].run;
  const TrainingCost cost =
      CostOfTraining({.ranks = run.layout.world_size(),
                      .tokens_per_s = ranking[row].figure.tokens_per_s,
                      .checkpoint_bytes = CheckpointBytes(run.model, run.optimizer.kind)},
                     cluster, tokens);
  FrontRow training = {.gpus = run.layout.world_size(), .row = row};
  training.hours = cost.wall_s / kSecondsOfHour;
  training.gpu_hours = cost.gpu_hours;
  if (cost.price > 0) training.price = cost.price;
  if (cost.energy_j > 0) training.energy_kwh = cost.kilowatt_hours();
  return training;
}

std::vector<FrontRow> TimeAgainstPrice(const std::vector<RankingRow>& ranking,
                                       const std::vector<CandidateRecord>& candidates,
                                       double tokens, const Cluster& cluster) {
  std::map<int64_t, size_t> best;  // row, by GPUs
  for (size_t i = 0; i < ranking.size(); ++i) {
    const RankingRow& row = ranking[i];
    const RunConfig& run = candidates[row.candidate].run;
    if (run.device == DeviceKind::kCpu || row.standing == Standing::kFailed) continue;
    const auto [found, is_new] = best.try_emplace(run.layout.world_size(), i);
    if (!is_new && GoesBefore(row, ranking[found->second])) found->second = i;
  }
  std::vector<FrontRow> front;
  for (const auto& [gpus, row] : best) {
    front.push_back(TrainingWith(ranking, row, candidates, tokens, cluster));
  }
  for (FrontRow& each : front) {
    each.on_front = std::none_of(front.begin(), front.end(), [&](const FrontRow& other) {
      return other.hours <= each.hours && other.gpu_hours <= each.gpu_hours &&
             (other.hours < each.hours || other.gpu_hours < each.gpu_hours);
    });
  }
  return front;
}

}  // namespace trimtab
