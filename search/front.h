// Front: time against price over numbers of GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cost_model/cluster.h"
#include "search/recommend.h"

namespace trimtab {

/// The best row of the ranking on so many GPUs, and what training on so many tokens takes.
struct FrontRow {
  int64_t gpus = 0;
  size_t row = 0;  // of the ranking
  double hours = 0;
  double gpu_hours = 0;
  std::optional<double> price{};       // where the cluster says what a GPU hour costs
  std::optional<double> energy_kwh{};  // where the power of a GPU is known
  bool on_front = false;               // no other is both faster and cheaper
};

/// Fewest GPUs first; empty on a cpu, whose ranks share one machine. `tokens` to train on, on
/// `cluster`, whose GPUs fail now and then and may have a price (cost_model/goodput.h).
std::vector<FrontRow> TimeAgainstPrice(const std::vector<RankingRow>& ranking,
                                       const std::vector<CandidateRecord>& candidates,
                                       double tokens, const Cluster& cluster);

}  // namespace trimtab
