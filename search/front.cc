#include "search/front.h"

#include <algorithm>
#include <map>

namespace trimtab {

std::vector<FrontRow> TimeAgainstPrice(const std::vector<RankingRow>& ranking,
                                       const std::vector<CandidateRecord>& candidates,
                                       double tokens, double price_per_gpu_hour) {
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
    each.hours = tokens / ranking[row].figure.tokens_per_s / kSecondsOfHour;
    each.gpu_hours = each.hours * static_cast<double>(gpus);
    if (price_per_gpu_hour > 0) each.price = each.gpu_hours * price_per_gpu_hour;
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
