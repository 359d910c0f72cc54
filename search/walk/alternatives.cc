#include "search/walk/alternatives.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "search/space/space_tree.h"

namespace trimtab {
namespace {

bool ComesBefore(const SortKey& key, const SpacePlace& place, const SortKey& other_key,
                 const SpacePlace& other) {
  return std::tie(key, place) < std::tie(other_key, other);
}

}  // namespace

double Alternatives::Farthest(size_t row) {
  // The rows of a micro batch are bound first.
  return row < RowsOf(LayoutPart::kPlans) ? kFarthest : kFarthestLate;
}

Alternatives::Alternatives(const Problem& problem, Objective objective, const Shortlisted& best)
    : objective_(objective), best_(best.run) {
  const SortKey key = PredictionKey(objective, best.run, best.prediction);
  const std::vector<SpaceRow>& rows = SpaceRows();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].alike == nullptr || !rows[i].applies(problem, best.run)) continue;
    slots_.push_back({.row = &rows[i], .number = i, .score = Farthest(i) * key.first});
  }
}

bool Alternatives::Settle(const SortKey& key, const SpacePlace& place) {
  bool open = false;
  for (Slot& slot : slots_) {
    const bool known =
        slot.candidate != nullptr && !ComesBefore(key, place, slot.key, slot.candidate->place);
    slot.settled = known || slot.score < key.first;
    open |= !slot.settled;
  }
  return open;
}

bool Alternatives::MayTake(const RunConfig& run, size_t bound, double score) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return !slot.settled && score <= slot.score &&
           (slot.number >= bound || !slot.row->alike(run, best_));
  });
}

void Alternatives::Offer(const SpacePlace& place, const RunConfig& run,
                         const Prediction& prediction) {
  const SortKey key = PredictionKey(objective_, run, prediction);
  std::shared_ptr<const Shortlisted> shared;
  for (Slot& slot : slots_) {
    if (key.first > slot.score || slot.row->alike(run, best_)) continue;
    const Shortlisted* had = slot.candidate.get();
    if (had != nullptr && !ComesBefore(key, place, slot.key, had->place)) continue;
    if (shared == nullptr) {
      shared = std::make_shared<Shortlisted>(Shortlisted{place, run, prediction});
    }
    slot.score = key.first;
    slot.key = key;
    slot.candidate = shared;
  }
}

std::vector<std::shared_ptr<const Shortlisted>> Alternatives::Take() {
  std::vector<std::shared_ptr<const Shortlisted>> list;
  for (Slot& slot : slots_) {
    if (auto candidate = std::exchange(slot.candidate, nullptr)) list.push_back(candidate);
  }
  std::sort(list.begin(), list.end(),
            [](const auto& a, const auto& b) { return a->place < b->place; });
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

std::vector<Explanation> Explain(const Problem& problem, Objective objective,
                                 const std::vector<CandidateRecord>& candidates, size_t chosen) {
  const RunConfig& run = candidates[chosen].run;
  if (!candidates[chosen].closed_form) return {};
  const auto key = [&](size_t index) {
    return PredictionKey(objective, candidates[index].run, *candidates[index].closed_form);
  };
  const auto best_of = [&](const auto& matches) {
    std::optional<size_t> best;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const CandidateRecord& candidate = candidates[i];
      if (!candidate.pruned_by.empty() || !candidate.closed_form) continue;
      if (matches(candidate.run) && (!best || key(i) < key(*best))) best = i;
    }
    return best;
  };
  const auto best = best_of([](const RunConfig&) { return true; });
  std::vector<Explanation> explanations;
  for (size_t i = 0; best && i < SpaceRows().size(); ++i) {
    const SpaceRow& row = SpaceRows()[i];
    if (row.alike == nullptr || !row.applies(problem, run)) continue;
    const std::optional<size_t> other =
        best_of([&](const RunConfig& other_run) { return !row.alike(other_run, run); });
    // Of what is further off, not all was looked at.
    if (!other || key(*other).first > Alternatives::Farthest(i) * key(*best).first) continue;
    const double extra_cost = key(*other).first / key(chosen).first - 1;
    // Predicted to be better, while a closer look or measurements chose otherwise: of what it is
    // worth the closed form knows nothing.
    if (extra_cost < 0) continue;
    explanations.push_back({.dimension = row.name,
                            .chosen = ValueInWords(row, run),
                            .value = ValueInWords(row, candidates[*other].run),
                            .other = *other,
                            .extra_cost = extra_cost});
  }
  std::stable_sort(
      explanations.begin(), explanations.end(),
      [](const Explanation& a, const Explanation& b) { return a.extra_cost > b.extra_cost; });
  return explanations;
}

}  // namespace trimtab
