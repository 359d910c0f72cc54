// Fortified longjmp refuses to leave for another stack, which is what fibers are.
#undef _FORTIFY_SOURCE

#include "engine/device/cuda/emulation/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "engine/base/error.h"

namespace trimtab::emulation {
namespace {

constexpr size_t kStackBytes = 256 << 10;

// Where the next new fiber finds itself and the way back to its maker.
thread_local Fiber* made = nullptr;
thread_local ucontext_t maker;

void FiberStart() {
  Fiber* self = made;
  // ucontext makes the stack; after that, switches are jumps, which need no system call.
  if (_setjmp(self->jump) == 0) {
    ucontext_t unused;
    swapcontext(&unused, &maker);
  }
  for (;;) self->main(self->argument);
}

void Make(Fiber& fiber) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  fiber.memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  TRIMTAB_ASSERT(fiber.memory != MAP_FAILED, "no memory for the stack of a fiber");
  TRIMTAB_ASSERT(mprotect(fiber.memory, page, PROT_NONE) == 0, "cannot guard a stack");
  ucontext_t context;
  TRIMTAB_ASSERT(getcontext(&context) == 0, "getcontext failed");
  context.uc_stack.ss_sp = static_cast<char*>(fiber.memory) + page;
  context.uc_stack.ss_size = kStackBytes - page;
  context.uc_link = nullptr;
  made = &fiber;
  makecontext(&context, FiberStart, 0);
  swapcontext(&maker, &context);
}

}  // namespace

__attribute__((noinline)) void SwitchFiber(Fiber& from, Fiber& to) {
  if (_setjmp(from.jump) == 0) _longjmp(to.jump, 1);
}

FiberPool::~FiberPool() {
  for (const auto& fiber : all_) munmap(fiber->memory, kStackBytes);
}

Fiber& FiberPool::Take(void (*main)(void*), void* argument) {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Fiber>());
    Make(*all_.back());
    free_.push_back(all_.back().get());
  }
  Fiber& fiber = *free_.back();
  free_.pop_back();
  fiber.main = main;
  fiber.argument = argument;
  running_ = &fiber;
  return fiber;
}

}  // namespace trimtab::emulation
