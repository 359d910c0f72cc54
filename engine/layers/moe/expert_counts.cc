#include "engine/layers/moe/expert_counts.h"

#include <numeric>

#include "engine/base/error.h"

namespace trimtab {

ExpertCounts::ExpertCounts(int64_t experts, const std::vector<int64_t>& rows) : experts_(experts) {
  for (auto rank = rows.begin(); rank != rows.end(); rank += experts) Add({rank, rank + experts});
}

size_t ExpertCounts::Add(const std::vector<int64_t>& rows) {
  TRIMTAB_ASSERT(static_cast<int64_t>(rows.size()) == experts_, "rows of {} experts, of {}",
                 rows.size(), experts_);
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  ranks_alike_.push_back(0);
  AddLike(ranks_alike_.size() - 1);
  return ranks_alike_.size() - 1;
}

void ExpertCounts::AddLike(size_t kind) {
  kind_of_.push_back(kind);
  ++ranks_alike_[kind];
}

std::span<const int64_t> ExpertCounts::of(int rank) const {
  const auto experts = static_cast<size_t>(experts_);
  return {rows_.data() + kind_of_[static_cast<size_t>(rank)] * experts, experts};
}

int64_t ExpertCounts::Count(int rank, const ExpertRange& experts) const {
  const auto first = of(rank).begin() + experts.first;
  return std::accumulate(first, first + experts.count, int64_t{0});
}

std::vector<int64_t> ExpertCounts::SumOverRanks(const ExpertRange& experts) const {
  std::vector<int64_t> sums(static_cast<size_t>(experts.count));
  auto rows = rows_.begin() + experts.first;
  for (const int64_t ranks : ranks_alike_) {
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] += ranks * rows[static_cast<std::ptrdiff_t>(i)];
    }
    rows += experts_;
  }
  return sums;
}

}  // namespace trimtab
