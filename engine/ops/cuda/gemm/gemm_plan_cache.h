// PlanCache: the plans that were used last. BucketAlgorithms: those of the sizes that share a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace trimtab {

/// Keeps at most `most` plans. One more takes the place of the one that was not used for longest.
template <typename Key, typename Plan>
class PlanCache {
 public:
  explicit PlanCache(size_t most) : most_(most) {}

  /// Returns the plan, which is the one used last from now on; nullptr where there is none.
  Plan* Find(const Key& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    plans_.splice(plans_.begin(), plans_, found->second);
    return &found->second->second;
  }

  /// Adds the plan of a key that has none. It stays where it is until it has to go.
  Plan& Add(const Key& key, Plan plan) {
    plans_.emplace_front(key, std::move(plan));
    const bool is_new = by_key_.emplace(key, plans_.begin()).second;
    TRIMTAB_ASSERT(is_new, "a second plan of a key");
    if (plans_.size() > most_) {
      by_key_.erase(plans_.back().first);
      plans_.pop_back();
    }
    return plans_.front().second;
  }

  size_t size() const { return plans_.size(); }

 private:
  using Plans = std::list<std::pair<Key, Plan>>;  // the one used last first

  const size_t most_;
  Plans plans_;
  std::map<Key, typename Plans::iterator> by_key_;
};

/// The algorithms of the sizes in one bucket: the one that was chosen for the bucket, and for sizes
/// that it does not run another. Each size is checked once.
template <typename Algorithm>
class BucketAlgorithms {
 public:
  BucketAlgorithms() = default;
  /// `chosen` runs `size`.
  BucketAlgorithms(int64_t size, Algorithm chosen) : algorithms_{std::move(chosen)} {
    by_size_.emplace(size, 0);
  }

  /// Returns the algorithm for `size`. At the first call for it that is the chosen one where
  /// `runs(chosen)`, else what `other()` returns; if that throws, the next call tries again.
  template <typename Runs, typename Other>
  const Algorithm& For(int64_t size, const Runs& runs, const Other& other) {
    const auto found = by_size_.find(size);
    if (found != by_size_.end()) return algorithms_[found->second];
    size_t index = 0;
    if (!runs(algorithms_.front())) {
      algorithms_.push_back(other());
      index = algorithms_.size() - 1;
    }
    by_size_.emplace(size, index);
    return algorithms_[index];
  }

 private:
  std::vector<Algorithm> algorithms_;  // the chosen one first
  std::unordered_map<int64_t, size_t> by_size_;
};

}  // namespace trimtab
