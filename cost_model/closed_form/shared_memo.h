// SharedMemo: what several threads look up by number, made once by whoever asks for it first.
#pragma once

#include <mutex>
#include <unordered_map>

#include "cost_model/closed_form/packed_key.h"
#include "engine/base/mutex.h"

namespace trimtab {

/// Thread-safe; what is done with its values is not its business.
template <typename Value>
class SharedMemo {
 public:
  /// The value at `key`, which stays where it is. Where there is none yet, it is what `make()`
  /// returns, while others who ask for it wait. Throws what that throws; the next one tries again.
  template <typename Make>
  Value& Get(const PackedKey& key, const Make& make) {
    Entry& entry = At(key);
    std::call_once(entry.made, [&] { entry.value = make(); });
    return entry.value;
  }

  size_t size() const {
    const MutexLock lock(mutex_);
    return entries_.size();
  }
  /// Only while no other thread asks, and where nobody has a value.
  void Clear() {
    const MutexLock lock(mutex_);
    entries_.clear();
  }

 private:
  struct Entry {
    std::once_flag made;
    Value value{};
  };

  Entry& At(const PackedKey& key) {
    const MutexLock lock(mutex_);
    return entries_[key];
  }

  mutable Mutex mutex_;
  std::unordered_map<PackedKey, Entry, PackedKey::Hash> entries_ TRIMTAB_GUARDED_BY(mutex_);
};

}  // namespace trimtab
