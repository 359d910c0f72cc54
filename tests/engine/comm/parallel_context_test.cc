#include "engine/comm/parallel_context.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "tests/engine/comm/rank_threads.h"

namespace trimtab {
namespace {

double SumOverGroup(Communicator& comm, double value) {
  const auto device = MakeCpuDevice(1);
  Tensor tensor = Tensor::Empty(*device, {1}, DType::kF32, MemoryTag::kCommunication);
  Set(tensor, 0, value);
  comm.AllReduce(tensor);
  return Get(tensor, 0);
}

TEST(RunInprocRanks, PlacesRanksTensorParallelFirst) {
  std::mutex mutex;
  std::set<int> ran;
  RunInprocRanks({.tp = 3, .dp = 2}, [&](ParallelContext& context) {
    EXPECT_EQ(context.tp_rank, context.rank % 3);
    EXPECT_EQ(context.dp_rank, context.rank / 3);
    EXPECT_EQ(context.tp->rank(), context.tp_rank);
    EXPECT_EQ(context.dp->rank(), context.dp_rank);
    EXPECT_EQ(context.world->rank(), context.rank);
    EXPECT_EQ(context.tp->size(), 3);
    EXPECT_EQ(context.dp->size(), 2);
    EXPECT_EQ(context.world->size(), 6);
    EXPECT_EQ(context.tp->group(), GroupKind::kTensor);
    EXPECT_EQ(context.dp->group(), GroupKind::kData);
    EXPECT_EQ(context.world->group(), GroupKind::kWorld);
    const double bit = 1 << context.rank;
    EXPECT_EQ(SumOverGroup(*context.tp, bit), context.dp_rank == 0 ? 0b000111 : 0b111000);
    EXPECT_EQ(SumOverGroup(*context.dp, bit), 0b001001 << context.tp_rank);
    EXPECT_EQ(SumOverGroup(*context.world, bit), 0b111111);
    const std::lock_guard lock(mutex);
    ran.insert(context.rank);
  });
  EXPECT_EQ(ran.size(), 6u);
}

// Sums of powers of two say who is in each group.
TEST(RunInprocRanks, GroupsSpanTheirAxes) {
  const ParallelConfig layout = {.tp = 2, .cp = 2, .pp = 2, .ep = 2, .etp = 2, .dp = 2};
  RunInprocRanks(layout, [&layout](ParallelContext& context) {
    for (const ProcessGroup& row : kProcessGroups) {
      double members = 0;
      for (const int member : GroupMembers(layout, row.kind, context.rank)) members += 1 << member;
      EXPECT_EQ(SumOverGroup(*context.group(row.kind), 1 << context.rank), members)
          << Name(row.kind);
    }
    EXPECT_EQ(SumOverGroup(*context.dp, 1 << context.rank), (0b01010101 << context.tp_rank)
                                                                << 8 * context.pp_rank);
  });
}

TEST(RunInprocRanks, NeighboursShareKeysAndValues) {
  RunInprocRanks(
      {.tp = 4, .dp = 2},
      [](ParallelContext& context) {
        EXPECT_EQ(context.kv->group(), GroupKind::kKeyValue);
        const int first = context.rank / 2 * 2;
        EXPECT_EQ(SumOverGroup(*context.kv, 1 << context.rank), 0b11 << first);
      },
      /*kv_copies=*/2);
}

// Rank 3 fails while its peers wait in every kind of group; its own exception comes out, with its
// type, whichever thread ends first.
TEST(RunInprocRanks, RethrowsTheCauseAndNotItsConsequences) {
  const Watchdog watchdog("a failing run");
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::atomic<int> told{0};
    try {
      RunInprocRanks({.tp = 2, .dp = 3}, [&told](ParallelContext& context) {
        if (context.rank == 3) throw StorageError("disk full");
        try {
          Communicator* const groups[] = {context.tp.get(), context.dp.get(), context.world.get()};
          groups[context.rank % 3]->Barrier();
          context.world->Barrier();
        } catch (const CommError& error) {
          ++told;
          EXPECT_STREQ(error.what(), "rank 3 failed: disk full");
          throw;
        }
      });
      FAIL() << "nothing was thrown";
    } catch (const StorageError& error) {
      EXPECT_STREQ(error.what(), "disk full");
    }
    EXPECT_EQ(told, 5);
  }
}

TEST(RunInprocRanks, RethrowsWhatIsNoStandardException) {
  const Watchdog watchdog("a failing run");
  EXPECT_THROW(RunInprocRanks({.dp = 2},
                              [](ParallelContext& context) {
                                if (context.rank == 1) throw 42;
                                context.dp->Barrier();
                              }),
               int);
}

TEST(RunInprocRanks, RankThatReturnsEarlyFailsThoseWhoWaitForIt) {
  const Watchdog watchdog("a mismatched run");
  try {
    RunInprocRanks({.dp = 2}, [](ParallelContext& context) {
      if (context.rank == 1) return;
      context.dp->Barrier();
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 has left"), std::string::npos);
  }
}

// Every rank waits in a group of which the other ranks wait elsewhere: no group alone can tell.
TEST(RunInprocRanks, DeadlockAcrossGroupsIsFound) {
  const Watchdog watchdog("a deadlocked run");
  for (int repeat = 0; repeat < 20; ++repeat) {
    try {
      RunInprocRanks({.tp = 2, .dp = 2}, [](ParallelContext& context) {
        context.world->Barrier();
        const bool outer = context.rank == 0 || context.rank == 3;
        (outer ? context.tp : context.dp)->Barrier();
      });
      FAIL() << "nothing was thrown";
    } catch (const CommError& error) {
      EXPECT_STREQ(error.what(),
                   "deadlock, every rank waits for another: rank 0 calls barrier in the tp group, "
                   "rank 1 calls barrier in the dp group, rank 2 calls barrier in the dp group, "
                   "rank 3 calls barrier in the tp group");
    }
  }
}

TEST(RunInprocRanks, OneRankNeedsNobody) {
  int runs = 0;
  RunInprocRanks({}, [&runs](ParallelContext& context) {
    context.world->Barrier();
    EXPECT_EQ(SumOverGroup(*context.tp, 2), 2);
    ++runs;
  });
  EXPECT_EQ(runs, 1);
}

TEST(MetaContext, AnyRankOfAnyWorld) {
  const ParallelContext context = MakeMetaContext({.tp = 8, .dp = 1024}, 4099);
  EXPECT_EQ(context.tp_rank, 3);
  EXPECT_EQ(context.dp_rank, 512);
  EXPECT_EQ(context.tp->size(), 8);
  EXPECT_EQ(context.dp->size(), 1024);
  EXPECT_EQ(context.dp->rank(), 512);
  EXPECT_EQ(context.world->size(), 8192);
  EXPECT_EQ(context.world->rank(), 4099);
}

TEST(MetaContext, StagesAndContextRanks) {
  const ParallelConfig layout = {.tp = 8, .cp = 2, .pp = 16, .dp = 64};
  // The last stage's rank with tp 5, cp 1, dp 7.
  const int rank = 5 + 8 * (1 + 2 * (7 + 64 * 15));
  const ParallelContext context = MakeMetaContext(layout, rank);
  EXPECT_EQ(context.cp_rank, 1);
  EXPECT_EQ(context.dp_rank, 7);
  EXPECT_EQ(context.pp_rank, 15);
  EXPECT_EQ(context.cp->size(), 2);
  EXPECT_EQ(context.cp->group(), GroupKind::kContext);
  EXPECT_EQ(context.dp->size(), 128) << "all ranks with the same weights";
  EXPECT_EQ(context.dp->rank(), 1 + 2 * 7);
  EXPECT_EQ(context.pp->size(), 16);
  EXPECT_EQ(context.pp->rank(), 15);
  EXPECT_EQ(context.pp->group(), GroupKind::kPipeline);
  EXPECT_EQ(context.embedding->size(), 2);
  EXPECT_EQ(context.embedding->rank(), 1);
  EXPECT_EQ(context.embedding->group(), GroupKind::kEmbedding);
  EXPECT_EQ(MakeMetaContext(layout, rank - 8 * 2 * 64).embedding->size(), 1) << "a stage between";
}

TEST(MetaContext, ShardsAndReplicas) {
  const ParallelContext context = MakeMetaContext({.tp = 2, .dp = 8, .zero = 3, .shard = 4}, 11);
  EXPECT_EQ(context.dp->rank(), 5);
  EXPECT_EQ(context.shard->size(), 4);
  EXPECT_EQ(context.shard->rank(), 1);
  EXPECT_EQ(context.shard->group(), GroupKind::kShard);
  EXPECT_EQ(context.replica->size(), 2);
  EXPECT_EQ(context.replica->rank(), 1);
  EXPECT_EQ(context.replica->group(), GroupKind::kReplica);
}

TEST(MetaContextDeathTest, RefusesWhatTheEngineCannotPlace) {
  EXPECT_DEATH(MakeMetaContext({.cp = 0}, 0), "an axis of 0 ranks");
  EXPECT_DEATH(MakeMetaContext({.tp = 2}, 2), "rank 2 of a world of 2");
}

}  // namespace
}  // namespace trimtab
