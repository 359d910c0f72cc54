#include "search/front.h"

#include <algorithm>
#include <map>

#include "cost_model/goodput.h"

namespace trimtab {

std::vector<FrontRow> TimeAgainstPrice(const std::vector<RankingRow>& ranking,
                                       const std::vector<CandidateRecord>& candidates,
                                       double tokens, const Cluster& cluster) {
  constexpr double kSecondsOfHour = 3600;
  std::map<int64_t, size_t> best;  // row, by GPUs
  for (size_t i = 0; i < ranking.size(); ++i) {
    const RankingRow& row = ranking[i];
    const RunConfig& run = candidates[row.candidate].run;
    if (run.device == "cpu" || row.standing == Standing::kFailed) continue;
    const auto [found, is_new] = best.try_emplace(run.layout.world_size(), i);
    if (!is_new && row.figure.tokens_per_s > ranking[found->second].figure.tokens_per_s) {
      found->second = i;
    }
  }
  std::vector<FrontRow> front;
  for (const auto& [gpus, row] : best) {
    FrontRow& each = front.emplace_back(FrontRow{.gpus = gpus, .row = row});
    const ModelConfig& model = candidates[ranking[row].candidate].run.model;
    const TrainingCost cost = CostOfTraining({.ranks = gpus,
                                              .tokens_per_s = ranking[row].figure.tokens_per_s,
                                              .checkpoint_bytes = CheckpointBytes(model)},
                                             cluster, tokens);
    each.hours = cost.wall_s / kSecondsOfHour;
    each.gpu_hours = cost.gpu_hours;
    if (cost.price > 0) each.price = cost.price;
    if (cost.energy_j > 0) each.energy_kwh = cost.kilowatt_hours();
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
