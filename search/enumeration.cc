#include "search/enumeration.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/rules/rules.h"
#include "search/space/space_tree.h"
#include "search/walk/alternatives.h"
#include "search/walk/best_layouts.h"

namespace trimtab {
namespace {

/// Why a rank with this prediction does not fit; empty when it does.
std::string MemoryBreach(const RunConfig& run, const Prediction& prediction) {
  const int64_t limit = run.memory_per_rank_bytes;
  if (limit == 0 || prediction.peak_mem_bytes <= limit) return "";
  return fmt::format("needs {} per rank, {} allowed", FormatBytes(prediction.peak_mem_bytes),
                     FormatBytes(limit));
}

CandidateRecord Candidate(const Problem& problem, const SpeedRequirements& speed,
                          const Shortlisted& listed) {
  const Breach breach = BreachOf(listed.run, listed.prediction, speed);
  CandidateRecord candidate;
  candidate.key = CandidateKey(listed.run, !problem.global_batches.empty());
  candidate.run = listed.run;
  candidate.closed_form = listed.prediction;
  candidate.pruned_by = breach.rule;
  candidate.pruned_why = breach.why;
  return candidate;
}

/// How many of each class are stored. The classes of a cpu are its numbers of ranks, whose
/// predictions are off against each other by more than most layouts of one differ.
/// With hundreds of classes, fewer of each are.
size_t MostOfClass(const Problem& problem, Predictor& predictor) {
  constexpr size_t kOfClassOfCpu = 60;
  constexpr size_t kOfAllClasses = 1000;
  if (problem.cluster.device == DeviceKind::kCpu) return kOfClassOfCpu;
  const size_t classes = std::max<size_t>(1, CountClasses(problem, predictor));
  return std::clamp<size_t>(kOfAllClasses / classes, 1, Shortlist::kOfClass);
}

using Listed = std::vector<std::shared_ptr<const Shortlisted>>;

/// `list`, with what else says what the choices of its best are worth, in the order of the space.
Listed WithAlternatives(const Problem& problem, Objective objective, const Listed& list,
                        Predictor& predictor, const Walkers& walkers) {
  // Of fewer than a shortlist may have, there are no others.
  if (list.size() < Shortlist::kOfAll) return list;
  std::vector<std::pair<SortKey, SpacePlace>> keys;
  for (const auto& each : list) {
    keys.emplace_back(PredictionKey(objective, each->run, each->prediction), each->place);
  }
  const auto best = std::min_element(keys.begin(), keys.end()) - keys.begin();
  Alternatives alternatives(problem, objective, *list[static_cast<size_t>(best)]);
  for (const auto& each : list) {
    alternatives.Offer(each->place, each->run, each->prediction);
  }
  const auto last = keys.begin() + Shortlist::kOfAll - 1;
  std::nth_element(keys.begin(), last, keys.end());
  if (!alternatives.Settle(last->first, last->second)) return list;
  Listed all = list;
  Listed others;
  try {
    others = FindOthers(problem, alternatives, predictor, walkers).list;
  } catch (const WalkStopped&) {
    return list;  // the best are known; what their choices are worth is not
  }
  for (const auto& other : others) {
    const bool listed = std::any_of(list.begin(), list.end(),
                                    [&](const auto& each) { return each->run == other->run; });
    if (!listed) all.push_back(other);
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a->place < b->place; });
  return all;
}

/// Throws UsageError where --allow names a value that no candidate can have beside one that some
/// have: --fix of that value alone would be refused, too.
void RequireAllThere(Problem problem) {
  const std::vector<Narrowing> narrowings = std::exchange(problem.narrowings, {});
  const auto several = [](const Narrowing& each) {
    // Of a plan of recomputing the row lists the families, and the key takes each plan.
    return !each.forbidden && each.values.size() > 1 && each.key != "recompute" &&
           each.key == SpaceRows()[RowThatBinds(each.key)].name;
  };
  if (std::none_of(narrowings.begin(), narrowings.end(), several)) return;
  const std::vector<std::vector<std::string>> values = SpaceTree(problem).ValuesByRow();
  for (const Narrowing& each : narrowings) {
    if (!several(each)) continue;
    const std::vector<std::string>& valid = values[RowThatBinds(each.key)];
    for (const std::string& value : each.values) {
      if (std::find(valid.begin(), valid.end(), value) != valid.end()) continue;
      throw UsageError(fmt::format("no candidate has {}={}; its values here: {}", each.key, value,
                                   fmt::join(valid, ", ")));
    }
  }
}

/// Narrowings left nothing: says which asks for what the space has not.
[[noreturn]] void ThrowEmpty(Problem problem) {
  const std::vector<Narrowing> narrowings = std::exchange(problem.narrowings, {});
  const std::vector<std::vector<std::string>> values = SpaceTree(problem).ValuesByRow();
  for (const Narrowing& each : narrowings) {
    const std::vector<std::string>& valid = values[RowThatBinds(each.key)];
    const bool listed = std::any_of(each.values.begin(), each.values.end(), [&](const auto& value) {
      return std::find(valid.begin(), valid.end(), value) != valid.end();
    });
    if (each.forbidden || listed || each.key != SpaceRows()[RowThatBinds(each.key)].name) continue;
    throw UsageError(fmt::format("no candidate has {}={}; its values here: {}", each.key,
                                 fmt::join(each.values, ","), fmt::join(valid, ", ")));
  }
  throw UsageError("--fix, --allow and --forbid together leave no candidate");
}

}  // namespace

Breach BreachOf(const RunConfig& run, const Prediction& prediction,
                const SpeedRequirements& speed) {
  if (std::string why = MemoryBreach(run, prediction); !why.empty()) return {kMemory, why};
  const auto* unmet = speed.FirstUnmet(run.layout.world_size(), prediction.tokens_per_s);
  if (unmet == nullptr) return {};
  return {unmet->id(),
          fmt::format("{:.0f} tokens/s are too few for {}", prediction.tokens_per_s, unmet->text)};
}

void StoreSpace(const Problem& problem, Objective objective, Predictor& predictor,
                const Walkers& walkers, Study& study) {
  RequireAllThere(problem);
  const Shortlist shortlist(objective, Shortlist::kOfAll, MostOfClass(problem, predictor));
  const BestLayouts best = FindBestLayouts(problem, shortlist, predictor, walkers);
  const WalkCounts& counts = best.counts;
  if (counts.size == 0) ThrowEmpty(problem);
  const Listed list = counts.unexplored > 0
                          ? best.list
                          : WithAlternatives(problem, objective, best.list, predictor, walkers);
  const SpeedRequirements speed(problem);
  std::vector<CandidateRecord> kept;
  for (const auto& listed : list) kept.push_back(Candidate(problem, speed, *listed));
  int64_t too_large = counts.visited - counts.fitting;
  int64_t cut_by_memory = counts.cut_by_memory;
  if (kept.empty() && too_large + cut_by_memory > 0) {
    const std::optional<Shortlisted> leanest = FindLeanest(problem, predictor, walkers);
    TRIMTAB_ASSERT(leanest.has_value(), "{} candidates do not fit, and none is there",
                   too_large + cut_by_memory);
    kept.push_back(Candidate(problem, speed, *leanest));
    if (kept.back().pruned_by == kMemory) {
      --(cut_by_memory > 0 ? cut_by_memory : too_large);
    } else {
      kept.clear();  // it fits, and one of the requirements left it out
    }
  }
  PrunedCounts left_out = counts.cut_by_rule;
  const auto leave_out = [&left_out](const char* why, int64_t count) {
    if (count > 0) left_out.emplace_back(why, count);
  };
  // Alternatives of the best that are listed beside it got a closed form, too.
  const auto beside = static_cast<int64_t>(list.size() - best.list.size());
  const int64_t of_cut = std::min(beside, counts.cut_by_bound);
  leave_out(kUnlisted, counts.fitting - static_cast<int64_t>(list.size()) + of_cut);
  leave_out(kBound, counts.cut_by_bound - of_cut);
  leave_out(kMemoryBound, cut_by_memory);
  leave_out(kMemory, too_large);
  leave_out(kUnexplored, counts.unexplored);
  study.StoreCandidates(kept, left_out, best.gap);
}

}  // namespace trimtab
