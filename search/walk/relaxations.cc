#include "search/walk/relaxations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/units.h"
#include "search/space/gpu_counts.h"
#include "search/walk/best_layouts.h"

namespace trimtab {
namespace {

/// A changed problem, and what to call the change.
struct Change {
  std::string what;
  Problem problem;
};

/// Doublings that are tried of a number of GPUs, halvings of a batch and of a sequence.
constexpr int kMostDoublings = 4;
constexpr int kMostHalvings = 6;
/// Beyond this, a few doublings of what there is are still tried, but no number that only memory
/// asks for: nobody waits for such searches, or has such machines.
constexpr int64_t kMostGpus = 1 << 14;

/// Whether they are a part of a node or whole ones.
bool AreWhole(int64_t gpus, const Cluster& cluster) {
  return gpus <= cluster.ranks_per_node || gpus % cluster.ranks_per_node == 0;
}

/// Of those that the cluster has, where only some may be taken; the nearest first.
std::vector<Change> OtherChoicesOfGpus(const Problem& problem) {
  const std::vector<int64_t> allowed = AllowedGpus(problem);
  const bool named = !problem.gpus.empty();
  Problem any = problem;
  any.gpus.clear();
  if (!named) any.max_ranks = 0;
  const int64_t all = AllowedGpus(any).back();
  std::set<int64_t> others = {all};
  for (const int64_t least : {int64_t{1}, problem.cluster.ranks_per_node}) {
    for (int64_t gpus = least; gpus < all; gpus *= 2) {
      if (AreWhole(gpus, problem.cluster)) others.insert(gpus);
    }
  }
  for (const int64_t gpus : allowed) others.erase(gpus);
  std::vector<int64_t> nearest(others.begin(), others.end());
  std::ranges::sort(nearest, {},
                    [&](int64_t gpus) { return std::pair(std::abs(gpus - allowed.back()), gpus); });
  std::vector<Change> changes;
  for (const int64_t gpus : nearest) {
    changes.push_back({fmt::format("{} {}", named ? "--gpus" : "--max-ranks", gpus), any});
    if (named) changes.back().problem.gpus = {gpus};
    if (!named) changes.back().problem.max_ranks = gpus;
  }
  return changes;
}

/// `least`: with half of it or fewer, no layout is likely to fit.
std::vector<Change> OtherGpus(const Problem& problem, int64_t least) {
  std::vector<Change> changes;
  if (problem.cluster.device == DeviceKind::kCpu) return changes;
  if (!problem.gpus.empty() || problem.max_ranks > 0) changes = OtherChoicesOfGpus(problem);
  const auto add = [&](int64_t gpus) {
    Change change = {fmt::format("{} GPUs", gpus), problem};
    change.problem.cluster = WithGpus(problem.cluster, gpus);
    change.problem.gpus.clear();
    change.problem.max_ranks = 0;
    if (AllowedGpus(change.problem).back() == gpus) changes.push_back(std::move(change));
  };
  const int64_t gpus = problem.cluster.max_ranks;
  int64_t times = 2;
  while (2 * gpus * times < std::min(least, kMostGpus)) times *= 2;
  for (int i = 0; i < kMostDoublings; ++i, times *= 2) add(gpus * times);
  if (!problem.gpus.empty() || problem.max_ranks > 0) return changes;
  // Numbers that divide badly may have no layout at all, where fewer GPUs have one.
  int64_t power = 1;
  while (2 * power < gpus) power *= 2;
  if (2 * power == gpus) return changes;
  for (; power >= 1; power /= 2) {
    if (AreWhole(power, problem.cluster)) add(power);
  }
  return changes;
}

std::vector<Change> ShorterSequences(const Problem& problem) {
  std::vector<Change> changes;
  const auto add = [&](int64_t length) {
    Change& change = changes.emplace_back(Change{fmt::format("--seq {}", length), problem});
    change.problem.sequence_length = length;
  };
  // No halving need end at what a model has positions for.
  int64_t length = problem.sequence_length;
  if (const int64_t most = problem.model.max_sequence_length;
      problem.model.position == PositionKind::kLearned && most < length) {
    add(length = most);
  }
  for (int i = 1; i <= kMostHalvings && length >> i >= 1; ++i) add(length >> i);
  return changes;
}

/// Batches that more ranks divide, and smaller ones; the nearest first.
std::vector<Change> OtherBatches(const Problem& problem) {
  const int64_t batch = problem.global_batch;
  std::vector<int64_t> sizes;
  for (int64_t ranks = problem.cluster.max_ranks; ranks > 1; ranks /= 2) {
    sizes.push_back(RoundUp(batch, ranks));
    if (batch > ranks) sizes.push_back(batch / ranks * ranks);
  }
  for (int i = 1; i <= kMostHalvings && batch >> i >= 1; ++i) sizes.push_back(batch >> i);
  std::erase(sizes, batch);
  std::sort(sizes.begin(), sizes.end(), [batch](int64_t a, int64_t b) {
    return std::pair(std::abs(a - batch), a) < std::pair(std::abs(b - batch), b);
  });
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::vector<Change> changes;
  for (const int64_t size : sizes) {
    changes.push_back({fmt::format("--gbs {}", size), problem});
    changes.back().problem.global_batch = size;
    changes.back().problem.global_batches.clear();
  }
  return changes;
}

std::vector<Change> LeanerStates(const Problem& problem) {
  std::vector<Change> changes;
  for (const char* state : {"reduced", "minimal"}) {
    const std::vector<std::string>& had = problem.optimizer_states;
    if (std::find(had.begin(), had.end(), state) != had.end()) continue;
    changes.push_back({fmt::format("--optimizer-state {}", state), problem});
    changes.back().problem.optimizer_states = {state};
  }
  return changes;
}

Change WithoutNarrowing(const Problem& problem, size_t number) {
  const Narrowing& narrowing = problem.narrowings[number];
  Change change = {fmt::format("without --{} {}={}", narrowing.forbidden ? "forbid" : "allow",
                               narrowing.key, fmt::join(narrowing.values, ",")),
                   problem};
  if (!narrowing.forbidden && narrowing.values.size() == 1) {
    change.what = fmt::format("without --fix {}={}", narrowing.key, narrowing.values.front());
  }
  std::vector<Narrowing>& left = change.problem.narrowings;
  left.erase(left.begin() + static_cast<std::ptrdiff_t>(number));
  return change;
}

Change WithoutRequirement(const Problem& problem, size_t number) {
  Change change = {fmt::format("without --require {}", problem.requirements[number].text), problem};
  std::vector<TrainingRequirement>& left = change.problem.requirements;
  left.erase(left.begin() + static_cast<std::ptrdiff_t>(number));
  return change;
}

/// The fastest layout of `problem` that fits.
std::optional<RunConfig> FastestThatFits(const Problem& problem, Predictor& predictor,
                                         const Walkers& walkers) {
  const std::unique_ptr<Predictor> own = predictor.For(problem);
  const BestLayouts best = FindBestLayouts(problem, Shortlist(Objective::kThroughput, 1, 0),
                                           own != nullptr ? *own : predictor, walkers);
  const Shortlisted* fastest = nullptr;
  for (const auto& each : best.list) {
    if (fastest == nullptr || each->prediction.tokens_per_s > fastest->prediction.tokens_per_s) {
      fastest = each.get();
    }
  }
  return fastest == nullptr ? std::nullopt : std::optional(fastest->run);
}

/// More memory for each rank, where it has that.
std::vector<Change> MoreMemory(const Problem& problem, const Shortlisted& leanest) {
  const int64_t bytes = RoundUp(leanest.prediction.peak_mem_bytes + HeadroomBytes(problem), kMiB);
  if (bytes > MemoryOfRank(problem.cluster, leanest.run.layout.world_size())) return {};
  Change change = {fmt::format("--memory-per-rank {}MiB", bytes / kMiB), problem};
  change.problem.memory_per_rank_bytes = bytes;
  return {change};
}

/// How many GPUs have as much memory as all ranks of the leanest layout need together: the more of
/// them share a model, the less each holds, but not in all.
int64_t GpusForMemory(const Problem& problem, const Shortlisted& leanest) {
  const int64_t limit = MemoryLimitBytes(problem, leanest.run);
  if (limit == 0) return 0;
  return CeilDiv(leanest.run.layout.world_size() * leanest.prediction.peak_mem_bytes, limit);
}

bool Fits(const Problem& problem, const Shortlisted& leanest) {
  const int64_t limit = MemoryLimitBytes(problem, leanest.run);
  return limit == 0 || leanest.prediction.peak_mem_bytes <= limit;
}

/// Of changes that each need less memory than the one before: none, where not even the last one
/// would help.
std::vector<Change> UnlessNoneHelps(std::vector<Change> changes, Predictor& predictor,
                                    const Walkers& walkers) {
  if (!changes.empty() && !FastestThatFits(changes.back().problem, predictor, walkers)) return {};
  return changes;
}

}  // namespace

std::vector<Relaxation> FindRelaxations(const Problem& problem, Predictor& predictor,
                                        const Walkers& walkers) {
  std::vector<std::vector<Change>> kinds;
  const std::optional<Shortlisted> leanest = FindLeanest(problem, predictor, walkers);
  const bool memory_lacks = leanest && !Fits(problem, *leanest);
  if (leanest) kinds.push_back(MoreMemory(problem, *leanest));
  kinds.push_back(OtherGpus(problem, memory_lacks ? GpusForMemory(problem, *leanest) : 0));
  std::vector<Change> sequences = ShorterSequences(problem);
  if (memory_lacks) sequences = UnlessNoneHelps(std::move(sequences), predictor, walkers);
  // Where not even the shortest sequences leave enough memory, weights take it.
  const bool weights_do_not_fit = memory_lacks && sequences.empty();
  kinds.push_back(std::move(sequences));
  if (!weights_do_not_fit) kinds.push_back(OtherBatches(problem));
  kinds.push_back(LeanerStates(problem));
  for (size_t i = 0; i < problem.narrowings.size(); ++i) {
    kinds.push_back({WithoutNarrowing(problem, i)});
  }
  for (size_t i = 0; i < problem.requirements.size(); ++i) {
    kinds.push_back({WithoutRequirement(problem, i)});
  }
  std::vector<Relaxation> found;
  for (const std::vector<Change>& changes : kinds) {
    for (const Change& change : changes) {
      const std::optional<RunConfig> run = FastestThatFits(change.problem, predictor, walkers);
      if (!run) continue;
      found.push_back({change.what, change.problem, *run});
      break;
    }
  }
  return found;
}

std::string InWords(const std::vector<Relaxation>& relaxations) {
  if (relaxations.empty()) return "no single change was found that would help";
  std::string text;
  for (const Relaxation& each : relaxations) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", each.what, CandidateKey(each.run));
  }
  return (relaxations.size() == 1 ? "this would help: " : "any of these would help: ") + text;
}

}  // namespace trimtab
