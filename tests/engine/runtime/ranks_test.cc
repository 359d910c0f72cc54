// Ranks of one process. tests/tools/mpirun_test.cc runs them as processes.
#include "engine/runtime/ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "engine/base/error.h"
#include "engine/device/cuda/loader.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

RunConfig RunOf(const std::string& layout) {
  RunConfig run = SmallRun(/*llama=*/false);
  run.layout = ParseLayout("mbs=1," + layout, 0);
  return run;
}

TEST(Ranks, EachHasItsPlaceAndItsDevice) {
  RunConfig run = RunOf("tp=2,dp=2");
  run.memory_per_rank_bytes = 12345;
  run.threads_per_rank = 3;
  std::atomic<int> ranks{0};
  std::atomic<int> speakers{0};
  RunRanks(run, [&](Rank& rank) {
    EXPECT_EQ(rank.index(), rank.parallel().rank);
    EXPECT_TRUE(rank.in_process());
    EXPECT_EQ(rank.device().kind(), DeviceKind::kCpu);
    EXPECT_EQ(rank.device().threads(), 3);
    EXPECT_THROW(rank.device().Allocate(12346, MemoryTag::kWorkspace), OutOfMemoryError);
    ranks += 1 << rank.index();
    speakers += rank.speaks() ? 1 + rank.index() : 0;
  });
  EXPECT_EQ(ranks, 0b1111);
  EXPECT_EQ(speakers, 1);
}

TEST(Ranks, TellOneAnotherNumbers) {
  RunRanks(RunOf("dp=4"), [](Rank& rank) {
    EXPECT_EQ(rank.FromFirst(100 + rank.index()), 100);
    const int64_t mine[] = {rank.index(), int64_t{1} << 40};
    const std::vector<int64_t> expected = {0, int64_t{1} << 40, 1, int64_t{1} << 40,
                                           2, int64_t{1} << 40, 3, int64_t{1} << 40};
    EXPECT_EQ(rank.Gather(mine), expected);
    std::array<int64_t, 2> largest = {rank.index(), -(int64_t{1} << 40)};
    rank.Max(largest);
    EXPECT_EQ(largest, (std::array<int64_t, 2>{3, -(int64_t{1} << 40)}));
    rank.Barrier();
    // What is told is no message of the run.
    EXPECT_EQ(rank.device().memory().peak_total(), 0);
  });
}

TEST(Ranks, FailureOfOneIsRethrown) {
  EXPECT_THROW(RunRanks(RunOf("dp=2"),
                        [](Rank& rank) {
                          if (rank.index() == 1) throw StorageError("disk full");
                          rank.Barrier();
                        }),
               StorageError);
}

TEST(Ranks, DeviceIsOneThatComputes) {
  RunConfig run = RunOf("dp=1");
  run.device = DeviceKind::kMeta;
  EXPECT_THROW(RunRanks(run, [](Rank&) {}), EnvironmentError);
}

TEST(Ranks, ShareTheGpusOrSayThatThereIsNone) {
  RunConfig run = RunOf("dp=2");
  run.device = DeviceKind::kCuda;
  if (FindCudaDevices().device_count > 0) {
    RunRanks(run, [](Rank& rank) { EXPECT_EQ(rank.device().kind(), DeviceKind::kCuda); });
    return;
  }
  try {
    RunRanks(run, [](Rank&) {});
    FAIL() << "ranks without a GPU";
  } catch (const EnvironmentError& error) {
    EXPECT_EQ(std::string(error.what()).find("no CUDA device: "), 0u) << error.what();
  }
}

}  // namespace
}  // namespace trimtab
