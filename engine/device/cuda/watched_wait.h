// Waiting for a GPU that may never get there, because another rank does not do its part.
#pragma once

#include <functional>

namespace trimtab {

/// Who looks after a rank while its host thread waits for the GPU.
class WaitWatch {
 public:
  virtual ~WaitWatch() = default;
  /// A wait has become a long one; it is over.
  virtual void Begin() = 0;
  virtual void End() = 0;
  /// Called again and again in between. Throws where there is nothing left to wait for.
  virtual void Check() = 0;
};

/// Returns when `done` does so with true. Looks closely at first, so that a short wait takes no
/// longer than it must; then leaves the core to others.
void WatchedWait(const std::function<bool()>& done, WaitWatch& watch);

}  // namespace trimtab
