// Stragglers: ranks that are by themselves slower than the others of their run, whom they keep
// waiting.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trimtab {

/// A rank, where it runs, and how much slower it is.
struct Straggler {
  int64_t rank = 0;
  std::string host{};  // the name of its node, or of the machine
  int64_t gpu = -1;    // of the host, counted from 0; -1 = none
  double times = 1;    // what its own work takes, of the median of the other ranks

  bool operator==(const Straggler&) const = default;
};

/// From so many times the median of the others on, a rank is a straggler. Ranks that share cores
/// take turns: the last of them may take twice what most do, on a machine that is sound.
inline constexpr double kStragglerTimes = 2.5;

/// The stragglers of a run, without their hosts. `own_s`: seconds that each rank took for the same
/// work, without waiting for others.
std::vector<Straggler> FindStragglers(std::span<const double> own_s);

/// Of the machine that this process runs on: as Slurm names the node, else as it calls itself.
std::string HostName();

/// "n17, GPU 2", or without one "n17".
std::string PlaceOf(const Straggler& straggler);

/// "rank 3 (n17, GPU 2) is 3.1 times as slow as the others"; several with semicolons between.
std::string InWords(std::span<const Straggler> stragglers);

}  // namespace trimtab
