#include "profiler/stragglers.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "engine/base/error.h"

namespace trimtab {
namespace {

/// Of `sorted`, two or more, without the one at `place`.
double MedianWithout(const std::vector<double>& sorted, size_t place) {
  const auto other = [&](size_t i) { return sorted[i < place ? i : i + 1]; };
  const size_t others = sorted.size() - 1;
  return (other((others - 1) / 2) + other(others / 2)) / 2;
}

}  // namespace

std::vector<Straggler> FindStragglers(std::span<const double> own_s) {
  std::vector<Straggler> stragglers;
  if (own_s.size() < 2) return stragglers;
  std::vector<double> sorted(own_s.begin(), own_s.end());
  std::sort(sorted.begin(), sorted.end());
  for (size_t rank = 0; rank < own_s.size(); ++rank) {
    const auto place = std::lower_bound(sorted.begin(), sorted.end(), own_s[rank]);
    const double times =
        own_s[rank] / MedianWithout(sorted, static_cast<size_t>(place - sorted.begin()));
    if (times < kStragglerTimes) continue;
    stragglers.push_back({.rank = static_cast<int64_t>(rank), .times = times});
  }
  return stragglers;
}

std::string HostName() {
  if (const char* node = std::getenv("SLURMD_NODENAME"); node != nullptr && *node != '\0') {
    return node;
  }
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this machine";
}

std::string PlaceOf(const Straggler& straggler) {
  if (straggler.gpu < 0) return straggler.host;
  return fmt::format("{}, GPU {}", straggler.host, straggler.gpu);
}

std::string InWords(std::span<const Straggler> stragglers) {
  std::string text;
  for (const Straggler& each : stragglers) {
    text += fmt::format("{}rank {} ({}) is {:.1f} times as slow as the others",
                        text.empty() ? "" : "; ", each.rank, PlaceOf(each), each.times);
  }
  return text;
}

}  // namespace trimtab
