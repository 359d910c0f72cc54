#include "engine/infer/rank_runner.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/comm/mpi_launch.h"
#include "engine/infer/plan_messages.h"
#include "engine/infer/serving_model.h"
#include "engine/train/ranks.h"

namespace trimtab {

/// What the caller's thread and those of the ranks here share. Work is numbered: 0 is loading, then
/// the steps.
class RankRunner::Ranks {
 public:
  Ranks(const ServingConfig& config, const WeightSource& source, RankHome home)
      : leads_(home == RankHome::kLaunch && FindMpiLaunch()),
        ranks_here_(leads_ ? 1 : config.layout.world_size()),
        threads_([this, config, &source, home] {
          Main(config, source, home == RankHome::kLaunch ? RunRanks : RunRanksHere);
        }) {
    Await();
  }

  ~Ranks() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    threads_.join();
  }

  std::vector<float> Run(const StepPlan& plan) {
    {
      const std::lock_guard lock(mutex_);
      plan_ = &plan;
      done_ = 0;
      ++work_;
    }
    changed_.notify_all();
    Await();
    return std::exchange(logits_, {});
  }

  int64_t peak_mem_bytes() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

 private:
  void Main(const ServingConfig& config, const WeightSource& source, decltype(RunRanks)& run) {
    try {
      run(RunOf(config), [&](Rank& rank) {
        ServingModel model(config, rank.parallel(), rank.device(), &source);
        if (leads_) return Lead(rank, model);
        Serve(rank, model);
      });
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    changed_.notify_all();
  }

  void Serve(Rank& rank, ServingModel& model) {
    const auto peak = [&rank] { return rank.device().memory().peak_total(); };
    Finish({}, peak());
    for (int64_t done = 0; const StepPlan* plan = NextPlan(done); ++done) {
      std::vector<float> logits = model.Run(*plan);
      Finish(std::move(logits), peak());
    }
  }

  /// The same of the first process, which the others follow.
  void Lead(Rank& rank, ServingModel& model) {
    TRIMTAB_ASSERT(rank.index() == 0, "rank {} has a runner of its own", rank.index());
    rank.Barrier();  // all have loaded
    Finish({}, rank.device().memory().peak_total());
    for (int64_t done = 0;; ++done) {
      std::vector<int64_t> packed;
      const int64_t size = rank.AwaitFirst([&] {
        if (const StepPlan* plan = NextPlan(done)) packed = PackPlan(*plan);
        return std::ssize(packed);
      });
      if (size == 0) return;
      StepOutcome outcome = RunTogether(rank, model, packed);
      Finish(std::move(outcome.logits), outcome.peak_mem_bytes);
    }
  }

  /// The plan after the first `done`; null when there will be none.
  const StepPlan* NextPlan(int64_t done) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_ || work_ > done; });
    return work_ > done ? plan_ : nullptr;
  }

  void Finish(std::vector<float> logits, int64_t peak) {
    {
      const std::lock_guard lock(mutex_);
      peak_ = std::max(peak_, peak);
      if (!logits.empty()) logits_ = std::move(logits);
      if (++done_ < ranks_here_) return;
    }
    changed_.notify_all();
  }

  /// Until every rank has done the work, or one has failed.
  void Await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == ranks_here_ || failure_ != nullptr; });
    if (failure_ == nullptr) return;
    std::exception_ptr failure = failure_;
    lock.unlock();
    if (work_ == 0) threads_.join();  // the constructor throws
    std::rethrow_exception(failure);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool leads_;  // processes that follow
  int64_t ranks_here_;
  int64_t work_ = 0;  // plans handed out
  int64_t done_ = 0;  // ranks that have done the latest work
  const StepPlan* plan_ = nullptr;
  std::vector<float> logits_;
  int64_t peak_ = 0;
  bool ends_ = false;
  std::exception_ptr failure_;
  std::thread threads_;
};

RankRunner::RankRunner(const ServingConfig& config, const WeightSource& source, RankHome home)
    : vocab_size_(config.model.vocab_size), ranks_(std::make_unique<Ranks>(config, source, home)) {}

RankRunner::~RankRunner() = default;

std::vector<float> RankRunner::Run(const StepPlan& plan) { return ranks_->Run(plan); }

int64_t RankRunner::peak_mem_bytes() const { return ranks_->peak_mem_bytes(); }

void FollowPlans(const ServingConfig& config, const WeightSource& source) {
  RunRanks(RunOf(config), [&](Rank& rank) {
    ServingModel model(config, rank.parallel(), rank.device(), &source);
    rank.Barrier();
    while (const int64_t size = rank.AwaitFirst({})) {
      std::vector<int64_t> packed(static_cast<size_t>(size));
      RunTogether(rank, model, packed);
    }
  });
}

}  // namespace trimtab
