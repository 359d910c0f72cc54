// IgnoredFields: which fields of requests nothing here knows.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "engine/base/mutex.h"

namespace trimtab {

/// Safe to use from several threads.
class IgnoredFields {
 public:
  /// Logs those of `names` that it has not logged yet, up to some number. Returns them all as a
  /// header's value; empty for none.
  std::string Tell(const std::vector<std::string>& names);

 private:
  Mutex mutex_;
  std::set<std::string> logged_ TRIMTAB_GUARDED_BY(mutex_);
};

}  // namespace trimtab
