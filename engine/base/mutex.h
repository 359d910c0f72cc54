// A mutex that clang knows: with -Wthread-safety it refuses code that touches what the mutex guards
// without holding it (clang.llvm.org/docs/ThreadSafetyAnalysis.html; tools/scripts/check_locks).
// Other compilers see none of the annotations.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

#if defined(__clang__)
#define TRIMTAB_THREAD_ANNOTATION(attribute) __attribute__((attribute))
#else
#define TRIMTAB_THREAD_ANNOTATION(attribute)
#endif

/// The member is read and written only while `mutex` is held.
#define TRIMTAB_GUARDED_BY(mutex) TRIMTAB_THREAD_ANNOTATION(guarded_by(mutex))
/// The function, or lambda, is called only while `mutex` is held.
#define TRIMTAB_REQUIRES(mutex) TRIMTAB_THREAD_ANNOTATION(requires_capability(mutex))
/// The function is called only while `mutex` is not held.
#define TRIMTAB_EXCLUDES(mutex) TRIMTAB_THREAD_ANNOTATION(locks_excluded(mutex))

namespace trimtab {

class TRIMTAB_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

/// Holds a mutex for as long as it lives, but between Unlock and Lock.
class TRIMTAB_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TRIMTAB_THREAD_ANNOTATION(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~MutexLock() TRIMTAB_THREAD_ANNOTATION(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Lock() TRIMTAB_THREAD_ANNOTATION(acquire_capability()) { lock_.lock(); }
  void Unlock() TRIMTAB_THREAD_ANNOTATION(release_capability()) { lock_.unlock(); }

  /// Releases the mutex until `ready()`, which is called with the mutex held.
  template <typename Ready>
  void Wait(std::condition_variable& changed, Ready ready) {
    changed.wait(lock_, std::move(ready));
  }
  /// Releases the mutex until `changed` is notified; may also return without.
  void WaitOnce(std::condition_variable& changed) { changed.wait(lock_); }
  /// See Wait. Returns false where that took longer than `patience`.
  template <typename Duration, typename Ready>
  bool WaitFor(std::condition_variable& changed, const Duration& patience, Ready ready) {
    return changed.wait_for(lock_, patience, std::move(ready));
  }
  /// See Wait. Returns false at `deadline`.
  template <typename TimePoint, typename Ready>
  bool WaitUntil(std::condition_variable& changed, const TimePoint& deadline, Ready ready) {
    return changed.wait_until(lock_, deadline, std::move(ready));
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace trimtab
