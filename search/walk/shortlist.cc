#include "search/walk/shortlist.h"

#include <algorithm>
#include <utility>

#include "search/space/space_rows.h"

namespace trimtab {

bool Shortlist::Entry::operator<(const Entry& other) const {
  return std::tie(key, candidate->place) < std::tie(other.key, other.candidate->place);
}

bool Shortlist::Best::MayTake(double score) const {
  if (entries_.size() < most_) return true;
  return most_ > 0 && score <= entries_.front().key.first;
}

void Shortlist::Best::Add(const Entry& entry) {
  if (entries_.size() == most_) {
    if (most_ == 0 || !(entry < entries_.front())) return;
    std::pop_heap(entries_.begin(), entries_.end());
    entries_.pop_back();
  }
  entries_.push_back(entry);
  std::push_heap(entries_.begin(), entries_.end());
}

Shortlist::Class Shortlist::ClassOf(const RunConfig& run) {
  return {run.layout.world_size(), run.global_batch, run.layout.numerics};
}

bool Shortlist::MayTake(const RunConfig& run, size_t /*bound*/, double score) const {
  if (of_all_.MayTake(score)) return true;
  if (most_of_class_ == 0) return false;
  const auto of_class = of_class_.find(ClassOf(run));
  return of_class == of_class_.end() || of_class->second.MayTake(score);
}

bool Shortlist::Misses(const RunConfig& run) const {
  return IsPlain(run.layout) && std::none_of(plain_.begin(), plain_.end(), [&](const auto& each) {
           return each->run.layout == run.layout && each->run.global_batch == run.global_batch;
         });
}

void Shortlist::Offer(const SpacePlace& place, const RunConfig& run, const Prediction& prediction) {
  const SortKey key = PredictionKey(objective_, run, prediction);
  const bool plain = IsPlain(run.layout);
  if (!plain && !MayTake(run, SpaceRows().size(), key.first)) return;
  const auto candidate = std::make_shared<Shortlisted>(Shortlisted{place, run, prediction});
  of_all_.Add({key, candidate});
  of_class_.try_emplace(ClassOf(run), most_of_class_).first->second.Add({key, candidate});
  if (plain) plain_.push_back(candidate);
}

std::vector<std::shared_ptr<const Shortlisted>> Shortlist::Take() {
  std::map<SpacePlace, std::shared_ptr<const Shortlisted>> kept;
  const auto keep = [&kept](const Best& best) {
    for (const Entry& entry : best.entries()) kept.emplace(entry.candidate->place, entry.candidate);
  };
  keep(of_all_);
  for (const auto& [its_class, best] : of_class_) keep(best);
  for (const auto& candidate : plain_) kept.emplace(candidate->place, candidate);
  *this = Shortlist(objective_, of_all_.most(), most_of_class_);
  std::vector<std::shared_ptr<const Shortlisted>> list;
  list.reserve(kept.size());
  for (auto& [place, candidate] : kept) list.push_back(std::move(candidate));
  return list;
}

}  // namespace trimtab
