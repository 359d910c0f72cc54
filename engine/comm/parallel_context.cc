#include "engine/comm/parallel_context.h"

#include <exception>
#include <map>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/signals_blocked.h"
#include "engine/comm/inproc/inproc_group.h"

namespace trimtab {
namespace {

/// All groups of one layout, and the first failure in any of its ranks.
class InprocWorld {
 public:
  InprocWorld(const ParallelConfig& layout, int64_t kv_copies)
      : layout_(layout), kv_copies_(kv_copies) {
    const int ranks = static_cast<int>(layout.world_size());
    const auto board = std::make_shared<WaitBoard>(ranks);
    for (const ProcessGroup& row : kProcessGroups) {
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<int> members = GroupMembers(layout, row.kind, rank, kv_copies);
        if (members.front() != rank) continue;
        groups_[{row.kind, rank}] =
            std::make_shared<InprocGroup>(row.kind, std::move(members), board);
      }
    }
    const std::vector<int> everyone = GroupMembers(layout, GroupKind::kWorld, 0);
    host_ = std::make_shared<InprocGroup>(GroupKind::kWorld, everyone, board);
  }

  ParallelContext Join(int rank) const {
    ParallelContext context =
        MakeContext(layout_, rank, kv_copies_, [&](GroupKind kind, const GroupPlace& place) {
          const int first = GroupMembers(layout_, kind, rank, kv_copies_).front();
          return MakeInprocCommunicator(groups_.at({kind, first}), place.rank);
        });
    context.host = MakeInprocCommunicator(host_, rank);
    return context;
  }

  /// Notes the exception being handled and stops every other rank. A CommError gives way to the
  /// exception that caused it, whichever is noted first.
  void Fail(const std::string& reason, bool is_consequence) {
    {
      const MutexLock lock(mutex_);
      if (!failure_ || (failure_is_consequence_ && !is_consequence)) {
        failure_ = std::current_exception();
        failure_is_consequence_ = is_consequence;
      }
    }
    host_->Abort(reason);
    for (const auto& [key, group] : groups_) group->Abort(reason);
  }

  void RethrowFailure() {
    const MutexLock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  ParallelConfig layout_;
  int64_t kv_copies_;
  std::map<std::pair<GroupKind, int>, std::shared_ptr<InprocGroup>> groups_;  // by the first rank
  std::shared_ptr<InprocGroup> host_;
  Mutex mutex_;
  std::exception_ptr failure_ TRIMTAB_GUARDED_BY(mutex_);
  bool failure_is_consequence_ TRIMTAB_GUARDED_BY(mutex_) = false;
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

std::unique_ptr<Communicator>& ParallelContext::group(GroupKind kind) {
  static constexpr std::array<std::unique_ptr<Communicator> ParallelContext::*, kGroupKindCount>
      kMembers = {&ParallelContext::world,
                  &ParallelContext::tp,
                  &ParallelContext::kv,
                  &ParallelContext::cp,
                  &ParallelContext::dp,
                  &ParallelContext::pp,
                  &ParallelContext::embedding,
                  &ParallelContext::shard,
                  &ParallelContext::replica,
                  &ParallelContext::ep,
                  &ParallelContext::etp,
                  &ParallelContext::etp_ep,
                  &ParallelContext::edp,
                  &ParallelContext::expert_shard,
                  &ParallelContext::expert_replica};
  return this->*kMembers[static_cast<size_t>(kind)];
}

ParallelContext PlaceRank(const ParallelConfig& layout, int rank) {
  const RankPlace place = PlaceOf(layout, rank);
  ParallelContext context;
  context.layout = layout;
  context.rank = rank;
  context.tp_rank = place.tp;
  context.cp_rank = place.cp;
  context.dp_rank = place.dp;
  context.pp_rank = place.pp;
  const ExpertPlace expert_place = ExpertPlaceOf(layout, rank);
  context.etp_rank = expert_place.etp;
  context.ep_rank = expert_place.ep;
  return context;
}

ParallelContext MakeContext(
    const ParallelConfig& layout, int rank, int64_t kv_copies,
    const std::function<std::unique_ptr<Communicator>(GroupKind, const GroupPlace&)>& make) {
  ParallelContext context = PlaceRank(layout, rank);
  for (const ProcessGroup& row : kProcessGroups) {
    context.group(row.kind) = make(row.kind, PlaceInGroup(layout, row.kind, rank, kv_copies));
  }
  return context;
}

ParallelContext MakeMetaContext(const ParallelConfig& layout, int rank, int64_t kv_copies) {
  return MakeContext(layout, rank, kv_copies, [](GroupKind kind, const GroupPlace& place) {
    return MakeMetaCommunicator(kind, place.rank, place.size);
  });
}

void RunInprocRanks(const ParallelConfig& layout,
                    const std::function<void(ParallelContext& context)>& body, int64_t kv_copies) {
  InprocWorld world(layout, kv_copies);
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < layout.world_size(); ++rank) {
      threads.emplace_back([&world, &body, rank] {
        const SignalsBlocked blocked;
        RunRank(world, rank, body);
      });
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
