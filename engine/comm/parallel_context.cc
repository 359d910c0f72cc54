#include "engine/comm/parallel_context.h"

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/comm/inproc_group.h"

namespace trimtab {
namespace {

/// All groups of one layout, and the first failure in any of its ranks.
class InprocWorld {
 public:
  explicit InprocWorld(const ParallelConfig& layout) : layout_(layout) {
    PlaceRank(layout, 0);  // checks the layout
    const int ranks = static_cast<int>(layout.world_size());
    const auto board = std::make_shared<WaitBoard>(ranks);
    std::vector<int> everyone;
    std::vector<std::vector<int>> by_dp_rank(static_cast<size_t>(layout.dp));
    std::vector<std::vector<int>> by_tp_rank(static_cast<size_t>(layout.tp));
    for (int rank = 0; rank < ranks; ++rank) {
      const ParallelContext place = PlaceRank(layout, rank);
      everyone.push_back(rank);
      by_dp_rank[static_cast<size_t>(place.dp_rank)].push_back(rank);
      by_tp_rank[static_cast<size_t>(place.tp_rank)].push_back(rank);
    }
    world_ = std::make_shared<InprocGroup>(GroupKind::kWorld, everyone, board);
    host_ = std::make_shared<InprocGroup>(GroupKind::kWorld, everyone, board);
    for (const auto& members : by_dp_rank) {
      tp_.push_back(std::make_shared<InprocGroup>(GroupKind::kTensor, members, board));
    }
    for (const auto& members : by_tp_rank) {
      dp_.push_back(std::make_shared<InprocGroup>(GroupKind::kData, members, board));
    }
  }

  ParallelContext Join(int rank) const {
    ParallelContext context = PlaceRank(layout_, rank);
    context.world = MakeInprocCommunicator(world_, rank);
    context.tp = MakeInprocCommunicator(tp_[static_cast<size_t>(context.dp_rank)], context.tp_rank);
    context.dp = MakeInprocCommunicator(dp_[static_cast<size_t>(context.tp_rank)], context.dp_rank);
    context.host = MakeInprocCommunicator(host_, rank);
    return context;
  }

  /// Notes the exception being handled and stops every other rank. A CommError gives way to the
  /// exception that caused it, whichever is noted first.
  void Fail(const std::string& reason, bool is_consequence) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_ || (failure_is_consequence_ && !is_consequence)) {
        failure_ = std::current_exception();
        failure_is_consequence_ = is_consequence;
      }
    }
    world_->Abort(reason);
    host_->Abort(reason);
    for (const auto& group : tp_) group->Abort(reason);
    for (const auto& group : dp_) group->Abort(reason);
  }

  void RethrowFailure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  ParallelConfig layout_;
  std::shared_ptr<InprocGroup> world_;
  std::shared_ptr<InprocGroup> host_;
  std::vector<std::shared_ptr<InprocGroup>> tp_;  // by dp rank
  std::vector<std::shared_ptr<InprocGroup>> dp_;  // by tp rank
  std::mutex mutex_;
  std::exception_ptr failure_;
  bool failure_is_consequence_ = false;
};

void RunRank(InprocWorld& world, int rank,
             const std::function<void(ParallelContext& context)>& body) {
  // Ends after the catch clauses: a rank that fails aborts its groups before it leaves them.
  ParallelContext context = world.Join(rank);
  try {
    body(context);
  } catch (const CommError& error) {
    world.Fail(error.what(), /*is_consequence=*/true);
  } catch (const std::exception& error) {
    world.Fail(fmt::format("rank {} failed: {}", rank, error.what()), false);
  } catch (...) {
    world.Fail(fmt::format("rank {} failed", rank), false);
  }
}

}  // namespace

ParallelContext PlaceRank(const ParallelConfig& layout, int rank) {
  TRIMTAB_ASSERT(layout.tp >= 1 && layout.dp >= 1 && layout.world_size() == layout.tp * layout.dp,
                 "the engine runs tp x dp layouts, got {}", ToString(layout));
  TRIMTAB_ASSERT(rank >= 0 && rank < layout.world_size(), "rank {} of a world of {}", rank,
                 layout.world_size());
  ParallelContext context;
  context.layout = layout;
  context.rank = rank;
  context.tp_rank = rank % static_cast<int>(layout.tp);
  context.dp_rank = rank / static_cast<int>(layout.tp);
  return context;
}

ParallelContext MakeMetaContext(const ParallelConfig& layout, int rank) {
  ParallelContext context = PlaceRank(layout, rank);
  const auto tp = static_cast<int>(layout.tp);
  const auto dp = static_cast<int>(layout.dp);
  context.world = MakeMetaCommunicator(GroupKind::kWorld, rank, tp * dp);
  context.tp = MakeMetaCommunicator(GroupKind::kTensor, context.tp_rank, tp);
  context.dp = MakeMetaCommunicator(GroupKind::kData, context.dp_rank, dp);
  return context;
}

void RunInprocRanks(const ParallelConfig& layout,
                    const std::function<void(ParallelContext& context)>& body) {
  InprocWorld world(layout);
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < layout.world_size(); ++rank) {
      threads.emplace_back([&world, &body, rank] { RunRank(world, rank, body); });
    }
  } catch (const std::system_error& error) {
    try {
      throw EnvironmentError(fmt::format("cannot start thread {} of {} ranks: {}", threads.size(),
                                         layout.world_size(), error.what()));
    } catch (const EnvironmentError& failure) {
      world.Fail(failure.what(), false);
    }
  }
  for (std::thread& thread : threads) thread.join();
  world.RethrowFailure();
}

}  // namespace trimtab
