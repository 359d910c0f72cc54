#include "engine/infer/executor/distributed_executor.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/mutex.h"
#include "engine/base/signals_blocked.h"
#include "engine/comm/mpi_launch.h"
#include "engine/infer/executor/rank_work.h"
#include "engine/infer/executor/serving_model.h"
#include "engine/infer/replicas/replica_link.h"
#include "engine/runtime/ranks.h"

namespace trimtab {
namespace {

// How often a rank that waits for work looks whether others have failed.
constexpr auto kGlance = std::chrono::milliseconds(100);
// Until a failure of another process is known here (engine/comm/README.md).
constexpr auto kTimeToFail = std::chrono::seconds(30);

}  // namespace

/// What the caller's thread and those of the ranks here share. Work is numbered: 0 is loading, then
/// what is asked of it.
class DistributedExecutor::Ranks {
 public:
  Ranks(const ServingConfig& config, const WeightSource& source, RankHome home)
      : leads_(home == RankHome::kLaunch && FindMpiLaunch()),
        ranks_here_(leads_ ? 1 : config.layout.world_size()),
        threads_([this, config, &source, home] {
          const SignalsBlocked blocked;
          Main(config, source, home);
        }) {
    Await();
  }

  ~Ranks() {
    {
      const MutexLock lock(mutex_);
      ends_ = true;
      links_.clear();  // whoever is there ends then, and the ranks here wait for that
    }
    changed_.notify_all();
    threads_.join();
  }

  std::vector<float> Run(const StepPlan& plan) {
    Carry({.plan = &plan});
    const MutexLock lock(mutex_);
    return std::exchange(logits_, {});
  }

  BlockContents ReadBlocks(std::span<const int32_t> blocks) {
    BlockContents contents(static_cast<size_t>(ranks_here_));
    Carry({.blocks = blocks, .into = &contents});
    return contents;
  }

  void WriteBlocks(std::span<const int32_t> blocks, const BlockContents& contents) {
    Carry({.blocks = blocks, .from = &contents});
  }

  std::vector<Socket> TakeLinks() {
    const MutexLock lock(mutex_);
    return std::exchange(links_, {});
  }

  std::exception_ptr failure() const {
    const MutexLock lock(mutex_);
    return failure_;
  }

  [[noreturn]] void ThrowFailure() {
    MutexLock lock(mutex_);
    lock.WaitFor(changed_, kTimeToFail,
                 [this]() TRIMTAB_REQUIRES(mutex_) { return failure_ != nullptr; });
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    throw EnvironmentError("a replica has let go of its connection, and no rank says why");
  }

  int64_t peak_mem_bytes() const {
    const MutexLock lock(mutex_);
    return peak_;
  }

 private:
  /// A step, or to read blocks, or to write them.
  struct Work {
    const StepPlan* plan = nullptr;
    std::span<const int32_t> blocks{};
    BlockContents* into = nullptr;  // by rank, if these are threads
    const BlockContents* from = nullptr;

    RankWork Packable() const {
      if (plan != nullptr) return {.plan = *plan};
      return {.kind = into != nullptr ? RankWork::Kind::kReadBlocks : RankWork::Kind::kWriteBlocks,
              .blocks = {blocks.begin(), blocks.end()}};
    }
  };

  /// Has it done by all ranks.
  void Carry(const Work& work) {
    {
      const MutexLock lock(mutex_);
      next_ = work;
      done_ = 0;
      ++work_;
    }
    changed_.notify_all();
    Await();
  }

  void Main(const ServingConfig& config, const WeightSource& source, RankHome home) {
    const RunConfig run = RunOf(config);
    const auto body = [&](Rank& rank) {
      ServingModel model(config, rank.parallel(), rank.device(), &source);
      if (leads_) return Lead(rank, model);
      Serve(rank, model);
    };
    try {
      if (home == RankHome::kLaunch) {
        RunRanks(run, body, config.layout.dp);
      } else {
        RunRanksHere(run, body);
      }
    } catch (...) {
      const MutexLock lock(mutex_);
      failure_ = std::current_exception();
    }
    changed_.notify_all();
  }

  void Serve(Rank& rank, ServingModel& model) {
    const auto peak = [&rank] { return rank.device().memory().peak_total(); };
    const auto index = static_cast<size_t>(rank.index());
    Finish({}, peak());
    for (int64_t done = 0; const std::optional<Work> work = NextWork(done); ++done) {
      std::vector<float> logits;
      if (work->plan != nullptr) {
        logits = model.Run(*work->plan);
      } else if (work->into != nullptr) {
        (*work->into)[index] = model.ReadBlocks(work->blocks);
      } else {
        model.WriteBlocks(work->blocks, work->from->at(index));
      }
      Finish(std::move(logits), peak());
    }
  }

  /// The same of the first process of a replica, which the others follow.
  void Lead(Rank& rank, ServingModel& model) {
    TRIMTAB_ASSERT(rank.index() == 0, "rank {} has a runner of its own", rank.index());
    std::vector<Socket> links = MeetReplicas(rank);
    {
      const MutexLock lock(mutex_);
      links_ = std::move(links);
    }
    Finish({}, rank.device().memory().peak_total());
    for (int64_t done = 0;; ++done) {
      std::vector<int64_t> packed;
      std::optional<Work> work;
      const int64_t size = rank.AwaitFirst([&] {
        while (!HasNews(done)) rank.CheckOthers();
        work = NextWork(done);
        if (work) packed = PackWork(work->Packable());
        return std::ssize(packed);
      });
      if (size == 0) return;
      WorkOutcome outcome = RunTogether(rank, model, packed, work->from);
      if (work->into != nullptr) *work->into = std::move(outcome.contents);
      Finish(std::move(outcome.logits), outcome.peak_mem_bytes);
    }
  }

  /// Whether NextWork need not wait; waits a while itself.
  bool HasNews(int64_t done) {
    MutexLock lock(mutex_);
    return lock.WaitFor(changed_, kGlance,
                        [&]() TRIMTAB_REQUIRES(mutex_) { return ends_ || work_ > done; });
  }

  /// The work after the first `done`; nullopt when there will be none.
  std::optional<Work> NextWork(int64_t done) {
    MutexLock lock(mutex_);
    lock.Wait(changed_, [&]() TRIMTAB_REQUIRES(mutex_) { return ends_ || work_ > done; });
    return work_ > done ? std::optional(next_) : std::nullopt;
  }

  void Finish(std::vector<float> logits, int64_t peak) {
    {
      const MutexLock lock(mutex_);
      peak_ = std::max(peak_, peak);
      if (!logits.empty()) logits_ = std::move(logits);
      if (++done_ < ranks_here_) return;
    }
    changed_.notify_all();
  }

  /// Until every rank has done the work, or one has failed.
  void Await() {
    std::exception_ptr failure;
    bool loads = false;
    {
      MutexLock lock(mutex_);
      lock.Wait(changed_, [&]() TRIMTAB_REQUIRES(mutex_) {
        return done_ == ranks_here_ || failure_ != nullptr;
      });
      failure = failure_;
      loads = work_ == 0;
    }
    if (failure == nullptr) return;
    if (loads) threads_.join();  // the constructor throws
    std::rethrow_exception(failure);
  }

  mutable Mutex mutex_;
  std::condition_variable changed_;
  const bool leads_;  // processes that follow
  const int64_t ranks_here_;
  int64_t work_ TRIMTAB_GUARDED_BY(mutex_) = 0;  // handed out
  int64_t done_ TRIMTAB_GUARDED_BY(mutex_) = 0;  // ranks that have done the latest work
  Work next_ TRIMTAB_GUARDED_BY(mutex_);
  // Connections to other replicas, until they are taken.
  std::vector<Socket> links_ TRIMTAB_GUARDED_BY(mutex_);
  std::vector<float> logits_ TRIMTAB_GUARDED_BY(mutex_);
  int64_t peak_ TRIMTAB_GUARDED_BY(mutex_) = 0;
  bool ends_ TRIMTAB_GUARDED_BY(mutex_) = false;
  std::exception_ptr failure_ TRIMTAB_GUARDED_BY(mutex_);
  std::thread threads_;
};

DistributedExecutor::DistributedExecutor(const ServingConfig& config, const WeightSource& source,
                                         RankHome home)
    : vocab_size_(config.model.vocab_size), ranks_(std::make_unique<Ranks>(config, source, home)) {}

DistributedExecutor::~DistributedExecutor() = default;

std::vector<float> DistributedExecutor::Run(const StepPlan& plan) { return ranks_->Run(plan); }

BlockContents DistributedExecutor::ReadBlocks(std::span<const int32_t> blocks) {
  return ranks_->ReadBlocks(blocks);
}

void DistributedExecutor::WriteBlocks(std::span<const int32_t> blocks,
                                      const BlockContents& contents) {
  ranks_->WriteBlocks(blocks, contents);
}

std::vector<Socket> DistributedExecutor::TakeLinks() { return ranks_->TakeLinks(); }

bool DistributedExecutor::failed() const { return ranks_->failure() != nullptr; }

void DistributedExecutor::ThrowIfFailed() const {
  if (const std::exception_ptr failure = ranks_->failure()) std::rethrow_exception(failure);
}

void DistributedExecutor::ThrowFailure() const { ranks_->ThrowFailure(); }

int64_t DistributedExecutor::peak_mem_bytes() const { return ranks_->peak_mem_bytes(); }

void FollowPlans(const ServingConfig& config, const WeightSource& source) {
  RunRanks(
      RunOf(config),
      [&](Rank& rank) {
        ServingModel model(config, rank.parallel(), rank.device(), &source);
        MeetReplicas(rank);
        while (const int64_t size = rank.AwaitFirst({})) {
          std::vector<int64_t> packed(static_cast<size_t>(size));
          RunTogether(rank, model, packed, /*contents=*/nullptr);
        }
      },
      config.layout.dp);
}

}  // namespace trimtab
