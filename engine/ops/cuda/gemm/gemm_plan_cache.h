// PlanCache: the plans that were used last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <utility>

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
    ++made_;
    if (plans_.size() > most_) {
      by_key_.erase(plans_.back().first);
      plans_.pop_back();
    }
    return plans_.front().second;
  }

  size_t size() const { return plans_.size(); }
  /// Plans added so far.
  int64_t made() const { return made_; }

 private:
  using Plans = std::list<std::pair<Key, Plan>>;  // the one used last first

  const size_t most_;
  Plans plans_;
  std::map<Key, typename Plans::iterator> by_key_;
  int64_t made_ = 0;
};

}  // namespace trimtab
