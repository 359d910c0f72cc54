#include "search/space/gpu_counts.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>

#include "engine/base/error.h"
#include "engine/config/json/text_values.h"

namespace trimtab {
namespace {

/// At least 1, and little enough for a row of the space.
std::optional<int64_t> ParseSize(std::string_view text) {
  int32_t size = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, size);
  if (result.ec == std::errc() && result.ptr == end && size >= 1) return size;
  return std::nullopt;
}

int64_t ParseCount(std::string_view text, const std::string& all) {
  if (const std::optional<int64_t> count = ParseSize(text)) return *count;
  throw UsageError(fmt::format(
      "--gpus {}: \"{}\": expected a range such as 64..1024, or a list such as 64,128", all, text));
}

}  // namespace

Cluster WithGpus(const Cluster& cluster, int64_t gpus) {
  const int64_t node = cluster.ranks_per_node;
  if (gpus < 1 || (gpus > node && gpus % node != 0)) {
    throw UsageError(
        fmt::format("{} GPUs: expected whole nodes of {}, or a part of one", gpus, node));
  }
  Cluster other = cluster;
  other.nodes = std::max<int64_t>(1, gpus / node);
  other.ranks_per_node = std::min(gpus, node);
  other.max_ranks = gpus;
  return other;
}

std::vector<int64_t> ParseGpuCounts(const std::string& text, const Cluster& cluster) {
  if (cluster.device == DeviceKind::kCpu) {
    throw UsageError(fmt::format("--gpus {}: the cluster {} has none; --max-ranks limits its ranks",
                                 text, cluster.name));
  }
  std::set<int64_t> counts;
  const std::string_view all = text;
  if (const size_t dots = all.find(".."); dots != std::string_view::npos) {
    const int64_t first = ParseCount(all.substr(0, dots), text);
    const int64_t last = ParseCount(all.substr(dots + 2), text);
    if (first > last) throw UsageError(fmt::format("--gpus {}: expected the smaller first", text));
    for (int64_t count = first; count <= last; count *= 2) counts.insert(count);
    counts.insert(last);
  } else {
    for (const std::string& each : Split(all, ',')) counts.insert(ParseCount(each, text));
  }
  for (const int64_t count : counts) {
    if (count > cluster.max_ranks) {
      throw UsageError(fmt::format("--gpus {}: the cluster {} has {} GPUs", text, cluster.name,
                                   cluster.max_ranks));
    }
    WithGpus(cluster, count);
  }
  return {counts.begin(), counts.end()};
}

std::vector<int64_t> ParseGlobalBatches(const std::vector<std::string>& words) {
  std::set<int64_t> batches;
  for (const std::string& word : words) {
    const std::optional<int64_t> size = ParseSize(word);
    if (!size) {
      throw UsageError(fmt::format(
          "--gbs {}: expected a number of sequences of at least 1, or a list such as 512,1024",
          word));
    }
    batches.insert(*size);
  }
  return {batches.begin(), batches.end()};
}

}  // namespace trimtab
