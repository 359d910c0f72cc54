// Fibers: stacks that one thread of the system switches between.
#pragma once

#include <csetjmp>
#include <memory>
#include <vector>

namespace trimtab::emulation {

/// A place to return to, on a stack of its own (or, as a plain object, that of the thread itself).
struct Fiber {
  std::jmp_buf jump;
  void* memory = nullptr;  // the stack, with a guard page at its end
  void (*main)(void*) = nullptr;
  void* argument = nullptr;
};

/// Leaves for `to`; returns when somebody switches back to `from`.
void SwitchFiber(Fiber& from, Fiber& to);

/// Fibers that are used again. Not thread-safe.
class FiberPool {
 public:
  FiberPool() = default;
  ~FiberPool();
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;

  /// A fiber that calls main(argument) once it is switched to. It counts as the running one. main
  /// must not return before it has given the fiber back and switched away; when the fiber is taken
  /// again, that switch returns, main returns, and the new main is called.
  Fiber& Take(void (*main)(void*), void* argument);
  void GiveBack(Fiber& fiber) { free_.push_back(&fiber); }

  Fiber& Running() { return *running_; }
  void SetRunning(Fiber& fiber) { running_ = &fiber; }

 private:
  std::vector<std::unique_ptr<Fiber>> all_;
  std::vector<Fiber*> free_;
  Fiber* running_ = nullptr;
};

}  // namespace trimtab::emulation
