// Front: time against price over numbers of GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cost_model/hardware/cluster.h"
#include "search/recommend.h"

namespace trimtab {

/// A row of the ranking, and what training on so many tokens takes with it: at its measured speed
/// where it was measured, else at the predicted one.
struct FrontRow {
  int64_t gpus = 0;
  size_t row = 0;  // of the ranking
  double hours = 0;
  double gpu_hours = 0;
  std::optional<double> price{};       // where the cluster says what a GPU hour costs
  std::optional<double> energy_kwh{};  // where the power of a GPU is known
  bool on_front = false;               // no other is both faster and cheaper
};

/// `tokens` to train on, on `cluster`, whose GPUs fail now and then and may have a price
/// (cost_model/goodput.h).
FrontRow TrainingWith(const std::vector<RankingRow>& ranking, size_t row,
                      const std::vector<CandidateRecord>& candidates, double tokens,
                      const Cluster& cluster);

/// The best row on each number of GPUs, a measured one where there is any; fewest GPUs first. Empty
/// on a cpu, whose ranks share one machine.
std::vector<FrontRow> TimeAgainstPrice(const std::vector<RankingRow>& ranking,
                                       const std::vector<CandidateRecord>& candidates,
                                       double tokens, const Cluster& cluster);

}  // namespace trimtab
