// How many GPUs a search may use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost_model/hardware/cluster.h"

namespace trimtab {

/// `cluster`, which has GPUs, with another number of them: whole nodes, or a part of one. Throws
/// UsageError where they are neither.
Cluster WithGpus(const Cluster& cluster, int64_t gpus);

/// "64..1024": 64 and its doubles below 1024, and 1024; or a list, "64,96,128". Ascending, each
/// once. Throws UsageError naming --gpus for anything else, a number that the cluster has not or
/// that is neither whole nodes nor a part of one, and a cluster without GPUs.
std::vector<int64_t> ParseGpuCounts(const std::string& text, const Cluster& cluster);

/// "512", or global batches to choose among, "512,1024": ascending, each once. Throws UsageError
/// naming --gbs for anything else.
std::vector<int64_t> ParseGlobalBatches(const std::vector<std::string>& words);

}  // namespace trimtab
