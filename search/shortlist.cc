#include "search/shortlist.h"

#include <algorithm>
#include <utility>

namespace trimtab {

bool Shortlist::Place::operator<(const Place& other) const {
  return std::tie(key, candidate->number) < std::tie(other.key, other.candidate->number);
}

bool Shortlist::Best::Takes(const SortKey& key) const {
  return places_.size() < most_ || key < places_.front().key;
}

void Shortlist::Best::Add(Place place) {
  if (places_.size() == most_) {
    std::pop_heap(places_.begin(), places_.end());
    places_.pop_back();
  }
  places_.push_back(std::move(place));
  std::push_heap(places_.begin(), places_.end());
}

Shortlist::ByObjective Shortlist::MakeBest(size_t most) {
  static_assert(kObjectives.size() == 3);
  return {Best(most), Best(most), Best(most)};
}

void Shortlist::Offer(const RunConfig& run, const Prediction& prediction) {
  const ParallelConfig& layout = run.layout;
  const Class its_class = {layout.world_size(), layout.precision, layout.master, layout.moments,
                           layout.gradients};
  ByObjective& of_class = of_class_.try_emplace(its_class, MakeBest(kOfClass)).first->second;
  std::shared_ptr<const Shortlisted> candidate;
  const auto kept = [&] {
    if (candidate == nullptr) {
      candidate = std::make_shared<Shortlisted>(Shortlisted{offered_, run, prediction});
    }
    return candidate;
  };
  for (size_t i = 0; i < kObjectives.size(); ++i) {
    const SortKey key = PredictionKey(kObjectives[i], run, prediction);
    for (Best* best : {&of_all_[i], &of_class[i]}) {
      if (best->Takes(key)) best->Add({key, kept()});
    }
  }
  if (IsPlain(layout)) plain_.push_back(kept());
  ++offered_;
}

std::vector<std::shared_ptr<const Shortlisted>> Shortlist::Take() {
  std::map<int64_t, std::shared_ptr<const Shortlisted>> kept;
  const auto keep = [&kept](const ByObjective& lists) {
    for (const Best& best : lists) {
      for (const Place& place : best.places()) {
        kept.emplace(place.candidate->number, place.candidate);
      }
    }
  };
  keep(of_all_);
  for (const auto& [its_class, lists] : of_class_) keep(lists);
  for (const auto& candidate : plain_) kept.emplace(candidate->number, candidate);
  *this = {};
  std::vector<std::shared_ptr<const Shortlisted>> list;
  list.reserve(kept.size());
  for (auto& [number, candidate] : kept) list.push_back(std::move(candidate));
  return list;
}

}  // namespace trimtab
