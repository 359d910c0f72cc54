#include "search/race/strategy.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace trimtab {
namespace {

/// Indices with a key, by ascending key; equal keys keep their order.
template <typename KeyOf>
std::vector<size_t> SortedBy(const std::vector<CandidateRecord>& candidates, KeyOf key_of) {
  std::vector<std::pair<SortKey, size_t>> keyed;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (const std::optional<SortKey> key = key_of(candidates[i])) keyed.emplace_back(*key, i);
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<size_t> indices;
  indices.reserve(keyed.size());
  for (const auto& [key, index] : keyed) indices.push_back(index);
  return indices;
}

}  // namespace

double Score(Objective objective, const CandidateRecord& candidate, StepSpeed speed,
             int64_t peak_mem_bytes) {
  // Nothing that meets the requirements is as bad.
  constexpr double kUnmet = 1e20;
  const double rate = candidate.serving ? 1 / speed.step_time_s : speed.tokens_per_s;
  const double score = Score(objective, candidate.run, rate, peak_mem_bytes);
  return candidate.strain > 0 ? kUnmet * candidate.strain * score : score;
}

std::vector<size_t> RankByPrediction(Objective objective,
                                     const std::vector<CandidateRecord>& candidates) {
  return SortedBy(candidates, [&](const CandidateRecord& candidate) -> std::optional<SortKey> {
    const Prediction* prediction = candidate.prediction();
    if (!candidate.pruned_by.empty() || prediction == nullptr) return std::nullopt;
    return SortKey{Score(objective, candidate, {prediction->step_time_s, prediction->tokens_per_s},
                         prediction->peak_mem_bytes),
                   prediction->step_time_s};
  });
}

std::vector<size_t> RankByMeasurement(Objective objective,
                                      const std::vector<CandidateRecord>& candidates) {
  return SortedBy(candidates, [&](const CandidateRecord& candidate) -> std::optional<SortKey> {
    if (!candidate.pruned_by.empty() || !candidate.measured) return std::nullopt;
    const Measurement& measured = *candidate.measured;
    return SortKey{Score(objective, candidate, {measured.step_time_s, measured.tokens_per_s},
                         measured.peak_mem_bytes),
                   measured.step_time_s};
  });
}

std::vector<size_t> ChooseDryRuns(Objective objective,
                                  const std::vector<CandidateRecord>& candidates, int64_t count) {
  std::vector<size_t> chosen =
      SortedBy(candidates, [&](const CandidateRecord& candidate) -> std::optional<SortKey> {
        // One that a dry run took out of the running still counts: a resumed search chooses alike.
        const bool considered = candidate.pruned_by.empty() || candidate.dry_run;
        if (!considered || !candidate.closed_form) return std::nullopt;
        const Prediction& prediction = *candidate.closed_form;
        return SortKey{
            Score(objective, candidate.run, prediction.tokens_per_s, prediction.peak_mem_bytes),
            prediction.step_time_s};
      });
  chosen.resize(std::min(chosen.size(), static_cast<size_t>(count)));
  std::erase_if(chosen, [&](size_t index) { return candidates[index].dry_run.has_value(); });
  return chosen;
}

std::vector<size_t> ChooseMoreDryRuns(Objective objective,
                                      const std::vector<CandidateRecord>& candidates) {
  // Few, since the first may show that no other is needed; the same on any number of threads.
  constexpr int kOfGroup = 4;
  std::set<size_t> chosen;
  const auto choose = [&](Objective by, const auto& group_of) {
    std::map<decltype(group_of(candidates.front())), int> left;
    for (const size_t index : RankByPrediction(by, candidates)) {
      int& of_group = left.try_emplace(group_of(candidates[index]), kOfGroup).first->second;
      if (of_group == 0) continue;
      of_group = candidates[index].dry_run ? 0 : of_group - 1;
      if (!candidates[index].dry_run) chosen.insert(index);
    }
  };
  choose(objective, [](const CandidateRecord&) { return 0; });
  choose(objective, [](const CandidateRecord& candidate) { return candidate.run.layout.numerics; });
  if (!candidates.empty() && candidates.front().run.device != DeviceKind::kCpu) {
    // The front takes the fastest on each number of GPUs, whatever the objective.
    choose(Objective::kThroughput,
           [](const CandidateRecord& candidate) { return candidate.run.layout.world_size(); });
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace trimtab
