#include "cost_model/idle_share.h"

#include <algorithm>
#include <cstdlib>

namespace trimtab {

double IdleShare(const RunConfig& run, const Cluster& cluster) {
  const int64_t stages = run.layout.pp;
  if (cluster.device != "cpu" || stages == 1) return 1;
  const Mode mode = ModeOf(run, cluster);
  const double crowding =
      static_cast<double>(mode.ranks) * mode.threads / static_cast<double>(cluster.cores);
  if (crowding <= 1) return 1;
  const auto pass = [&](int64_t busy) {
    return std::max(static_cast<double>(busy) / static_cast<double>(stages), 1 / crowding);
  };
  const int64_t micro_batches = run.num_micro_batches();
  const int64_t most_busy = std::min(micro_batches, stages);
  double passes = static_cast<double>(std::abs(micro_batches - stages) + 1) * pass(most_busy);
  for (int64_t busy = 1; busy < most_busy; ++busy) passes += 2 * pass(busy);
  // The last digits of a sum of m/p may fall short of m.
  return std::max(0.0, passes - static_cast<double>(micro_batches)) /
         static_cast<double>(stages - 1);
}

}  // namespace trimtab
