#include "engine/infer/rank_runner.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/infer/serving_model.h"
#include "engine/train/ranks.h"

namespace trimtab {

/// What the caller's thread and the ranks' share. Work is numbered: 0 is loading, then the steps.
class RankRunner::Ranks {
 public:
  Ranks(const ServingConfig& config, const WeightSource& source)
      : world_size_(config.layout.world_size()),
        threads_([this, config, &source] { Main(config, source); }) {
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
  void Main(const ServingConfig& config, const WeightSource& source) {
    try {
      RunRanks(RunOf(config), [&](Rank& rank) { Serve(config, source, rank); });
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    changed_.notify_all();
  }

  void Serve(const ServingConfig& config, const WeightSource& source, Rank& rank) {
    ServingModel model(config, rank.parallel(), rank.device(), &source);
    Finish(rank, {});
    for (int64_t done = 0; const StepPlan* plan = NextPlan(done); ++done) {
      Finish(rank, model.Run(*plan));
    }
  }

  /// The plan after the first `done`; null when there will be none.
  const StepPlan* NextPlan(int64_t done) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_ || work_ > done; });
    return work_ > done ? plan_ : nullptr;
  }

  void Finish(Rank& rank, std::vector<float> logits) {
    {
      const std::lock_guard lock(mutex_);
      peak_ = std::max(peak_, rank.device().memory().peak_total());
      if (!logits.empty()) logits_ = std::move(logits);
      if (++done_ < world_size_) return;
    }
    changed_.notify_all();
  }

  /// Until every rank has done the work, or one has failed.
  void Await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == world_size_ || failure_ != nullptr; });
    if (failure_ == nullptr) return;
    std::exception_ptr failure = failure_;
    lock.unlock();
    if (work_ == 0) threads_.join();  // the constructor throws
    std::rethrow_exception(failure);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t world_size_;
  int64_t work_ = 0;  // plans handed out
  int64_t done_ = 0;  // ranks that have done the latest work
  const StepPlan* plan_ = nullptr;
  std::vector<float> logits_;
  int64_t peak_ = 0;
  bool ends_ = false;
  std::exception_ptr failure_;
  std::thread threads_;
};

RankRunner::RankRunner(const ServingConfig& config, const WeightSource& source)
    : vocab_size_(config.model.vocab_size), ranks_(std::make_unique<Ranks>(config, source)) {}

RankRunner::~RankRunner() = default;

std::vector<float> RankRunner::Run(const StepPlan& plan) { return ranks_->Run(plan); }

int64_t RankRunner::peak_mem_bytes() const { return ranks_->peak_mem_bytes(); }

}  // namespace trimtab
