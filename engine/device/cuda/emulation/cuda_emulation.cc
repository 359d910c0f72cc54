// Fortified longjmp refuses to leave for another stack, which is what fibers are.
#undef _FORTIFY_SOURCE

#include "engine/device/cuda/emulation/cuda_emulation.h"

#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "engine/device/cuda/emulation/fiber.h"

namespace trimtab::emulation {
namespace {

constexpr int kWarp = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr size_t kSharedAlignment = 128;

enum class State : char { kReady, kAtBarrier, kInCollective, kDone };

struct Thread {
  State state = State::kReady;
  Fiber* fiber = nullptr;  // once it has had to wait
};

/// What the lanes of a warp that wait in a collective have brought.
struct Warp {
  unsigned waiting = 0;
  void* arguments[kWarp];
  unsigned masks[kWarp];
  Combine combines[kWarp];
};

// The lanes that wait with lane `own` in the same collective.
unsigned Joined(const Warp& warp, int own) {
  unsigned joined = 0;
  for (int i = 0; i < kWarp; ++i) {
    if ((warp.waiting >> i & 1u) == 0) continue;
    if (warp.masks[i] == warp.masks[own] && warp.combines[i] == warp.combines[own]) {
      joined |= 1u << i;
    }
  }
  return joined;
}

/// One block at a time, on one thread of the system.
class Scheduler {
 public:
  void Run(const LaunchShape& shape, const std::function<void()>& thread);
  void Barrier();
  void Collective(unsigned mask, void* argument, Combine combine);
  [[noreturn]] void Fail(const std::string& what) const;

  int lane() const { return current_ % kWarp; }
  void* shared() const { return shared_; }

 private:
  static void FiberMain(void* scheduler) { static_cast<Scheduler*>(scheduler)->RunThreads(); }
  void RunBlock();
  void RunThreads();
  void Wait(State state);
  void SwitchAway(Fiber& from);
  void Enter(int thread);
  void Release(int thread) {
    threads_[static_cast<size_t>(thread)].state = State::kReady;
    ready_.push_back(thread);
  }
  bool HasReady() const { return next_ready_ < ready_.size(); }
  int TakeReady();
  void CheckShape() const;
  [[noreturn]] void FailStuck() const;

  const LaunchShape* shape_ = nullptr;  // of the launch that runs
  const std::function<void()>* body_ = nullptr;
  int count_ = 0;  // threads of a block
  // How the threads of the running block take turns. Any way is allowed, so the blocks that run one
  // after another do so in all four: what depends on it then shows.
  unsigned turn_ = 0;
  bool backwards_ = false;  // the last thread first
  bool eager_ = false;      // who was released last goes on first: warps run ahead of each other

  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  int started_ = 0;
  int done_ = 0;
  int at_barrier_ = 0;
  int current_ = 0;
  std::vector<int> ready_;  // threads that may go on, in order from next_ready_
  size_t next_ready_ = 0;

  FiberPool fibers_;
  Fiber main_;
  std::vector<char> shared_memory_;
  void* shared_ = nullptr;
};

void Scheduler::CheckShape() const {
  const dim3& block = shape_->block;
  if (count_ == 0 || block.x * block.y * block.z > kMaxThreads) {
    Fail(fmt::format("a block of {} threads: a GPU takes 1 to {}", count_, kMaxThreads));
  }
  if (shape_->shared_bytes > size_t{kMaxSharedBytes}) {
    Fail(fmt::format("{} bytes of dynamic shared memory: a GPU has {}", shape_->shared_bytes,
                     kMaxSharedBytes));
  }
}

void Scheduler::Run(const LaunchShape& shape, const std::function<void()>& thread) {
  TRIMTAB_ASSERT(shape_ == nullptr, "a kernel launches another, which the emulation does not do");
  shape_ = &shape;
  body_ = &thread;
  count_ = static_cast<int>(shape.block.x * shape.block.y * shape.block.z);
  CheckShape();
  shared_memory_.resize(shape.shared_bytes + kSharedAlignment);
  void* start = shared_memory_.data();
  size_t space = shared_memory_.size();
  shared_ = std::align(kSharedAlignment, shape.shared_bytes, start, space);

  gridDim = {shape.grid.x, shape.grid.y, shape.grid.z};
  blockDim = {shape.block.x, shape.block.y, shape.block.z};
  for (blockIdx.z = 0; blockIdx.z < shape.grid.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < shape.grid.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < shape.grid.x; ++blockIdx.x) {
        RunBlock();
      }
    }
  }
  shape_ = nullptr;
}

void Scheduler::RunBlock() {
  backwards_ = (turn_ & 1u) != 0;
  eager_ = (turn_ & 2u) != 0;
  ++turn_;
  // Every float format reads these bits as NaN.
  std::memset(shared_, 0xff, shape_->shared_bytes);
  threads_.assign(static_cast<size_t>(count_), Thread{});
  warps_.resize(static_cast<size_t>((count_ + kWarp - 1) / kWarp));
  for (Warp& warp : warps_) warp.waiting = 0;
  ready_.clear();
  next_ready_ = 0;
  started_ = done_ = at_barrier_ = 0;
  SwitchFiber(main_, fibers_.Take(FiberMain, this));
}

// What a fiber does: threads one after another, until others are to go on.
void Scheduler::RunThreads() {
  while (started_ < count_ && !(eager_ && HasReady())) {
    const int index = started_++;
    const int thread = backwards_ ? count_ - 1 - index : index;
    Enter(thread);
    (*body_)();
    // The fiber may meanwhile have waited, so look at who runs now, not at `thread`.
    threads_[static_cast<size_t>(current_)].state = State::kDone;
    ++done_;
  }
  Fiber& own = fibers_.Running();
  fibers_.GiveBack(own);
  SwitchAway(own);
}

void Scheduler::Enter(int thread) {
  current_ = thread;
  const auto index = static_cast<unsigned>(thread);
  const dim3& block = shape_->block;
  threadIdx = {index % block.x, index / block.x % block.y, index / (block.x * block.y)};
}

// Goes on with whoever can: a thread not yet started, one released, or, when all are done, the
// caller of the launch.
void Scheduler::SwitchAway(Fiber& from) {
  if (HasReady() && (eager_ || started_ == count_)) {
    const int thread = TakeReady();
    Enter(thread);
    Fiber& to = *threads_[static_cast<size_t>(thread)].fiber;
    fibers_.SetRunning(to);
    if (&to != &from) SwitchFiber(from, to);
  } else if (started_ < count_) {
    SwitchFiber(from, fibers_.Take(FiberMain, this));
  } else if (done_ == count_) {
    SwitchFiber(from, main_);
  } else {
    FailStuck();
  }
}

int Scheduler::TakeReady() {
  const int thread = eager_ ? ready_.back() : ready_[next_ready_++];
  if (eager_) ready_.pop_back();
  if (next_ready_ == ready_.size()) {
    ready_.clear();
    next_ready_ = 0;
  }
  return thread;
}

void Scheduler::Wait(State state) {
  Thread& self = threads_[static_cast<size_t>(current_)];
  self.state = state;
  self.fiber = &fibers_.Running();
  SwitchAway(*self.fiber);
}

void Scheduler::Barrier() {
  if (++at_barrier_ < count_) {
    Wait(State::kAtBarrier);
    return;
  }
  at_barrier_ = 0;
  for (int i = 0; i < count_; ++i) {
    const int thread = backwards_ ? count_ - 1 - i : i;
    if (thread != current_) Release(thread);
  }
}

void Scheduler::Collective(unsigned mask, void* argument, Combine combine) {
  const int own = lane();
  const int base = current_ - own;
  Warp& warp = warps_[static_cast<size_t>(current_ / kWarp)];
  const unsigned present = count_ - base >= kWarp ? ~0u : (1u << (count_ - base)) - 1u;
  if ((mask >> own & 1u) == 0) Fail("a lane joins a collective of its warp whose mask omits it");
  if ((mask & ~present) != 0) {
    Fail(fmt::format("a collective over lanes {:#x} of a warp that has only {:#x}", mask, present));
  }
  warp.arguments[own] = argument;
  warp.masks[own] = mask;
  warp.combines[own] = combine;
  warp.waiting |= 1u << own;
  if ((mask & ~warp.waiting) != 0 || Joined(warp, own) != mask) {
    Wait(State::kInCollective);
    return;
  }
  void* arguments[kWarp];
  for (int i = 0; i < kWarp; ++i) arguments[i] = (mask >> i & 1u) ? warp.arguments[i] : nullptr;
  combine(arguments, mask);
  warp.waiting &= ~mask;
  for (int i = 0; i < kWarp; ++i) {
    const int other = backwards_ ? kWarp - 1 - i : i;
    if (other != own && (mask >> other & 1u)) Release(base + other);
  }
}

void Scheduler::Fail(const std::string& what) const {
  fmt::print(stderr,
             "emulated kernel launched at {}:{}, block ({}, {}, {}), thread ({}, {}, {}): {}\n",
             shape_->file, shape_->line, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
             threadIdx.y, threadIdx.z, what);
  std::abort();
}

// Nobody can go on, yet threads wait.
void Scheduler::FailStuck() const {
  for (int thread = 0; thread < count_; ++thread) {
    if (threads_[static_cast<size_t>(thread)].state != State::kInCollective) continue;
    const int own = thread % kWarp;
    const Warp& warp = warps_[static_cast<size_t>(thread / kWarp)];
    const int missing = std::countr_zero(warp.masks[own] & ~Joined(warp, own));
    const State other = threads_[static_cast<size_t>(thread - own + missing)].state;
    Fail(fmt::format("thread {} waits in a collective of its warp for lane {}, which {}", thread,
                     missing,
                     other == State::kDone        ? "has ended"
                     : other == State::kAtBarrier ? "waits at a barrier"
                                                  : "waits in another"));
  }
  Fail(fmt::format("{} of {} threads wait at a barrier; the others have ended", at_barrier_,
                   count_));
}

Scheduler& Current() {
  thread_local Scheduler scheduler;
  return scheduler;
}

void CombineBallot(void* const* arguments, unsigned mask) {
  unsigned votes = 0;
  for (int lane = 0; lane < kWarp; ++lane) {
    if (arguments[lane] == nullptr) continue;
    if (static_cast<const BallotArgument*>(arguments[lane])->predicate) votes |= 1u << lane;
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1u) != 0) static_cast<BallotArgument*>(arguments[lane])->result = votes;
  }
}

}  // namespace

void Run(const LaunchShape& shape, const std::function<void()>& thread) {
  Current().Run(shape, thread);
}
void* DynamicSharedMemory() { return Current().shared(); }
void Barrier() { Current().Barrier(); }
void Collective(unsigned mask, void* argument, Combine combine) {
  Current().Collective(mask, argument, combine);
}
int Lane() { return Current().lane(); }
void Fail(const std::string& what) { Current().Fail(what); }

unsigned Ballot(unsigned mask, bool predicate) {
  BallotArgument argument{predicate, 0};
  Collective(mask, &argument, CombineBallot);
  return argument.result;
}

}  // namespace trimtab::emulation
