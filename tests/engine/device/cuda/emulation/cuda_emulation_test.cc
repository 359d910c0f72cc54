// The emulation does what a GPU does where that is defined, and stops where it is not.
#include "engine/device/cuda/emulation/cuda_emulation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <thread>
#include <tuple>

namespace trimtab {
namespace {

using emulation::LaunchShape;

void RunKernel(const LaunchShape& shape, const std::function<void()>& thread) {
  emulation::Run(shape, thread);
}

// Small forms of what a kernel is made of.
constexpr unsigned kAll = 0xffffffffu;

int Thread() { return static_cast<int>(threadIdx.x); }

TEST(CudaEmulation, RunsEveryThreadOfEveryBlockOnce) {
  std::multiset<std::tuple<unsigned, unsigned, unsigned, unsigned, unsigned, unsigned>> seen;
  RunKernel({dim3(3, 2, 2), dim3(4, 3, 2)}, [&] {
    EXPECT_EQ(gridDim.x * 100 + gridDim.y * 10 + gridDim.z, 322u);
    EXPECT_EQ(blockDim.x * 100 + blockDim.y * 10 + blockDim.z, 432u);
    seen.emplace(blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  });
  EXPECT_EQ(seen.size(), 12u * 24u);
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), seen.size());
}

TEST(CudaEmulation, NothingAfterABarrierRunsBeforeAllThreadsReachIt) {
  constexpr int kThreads = 100;  // the last warp is not whole
  int arrived = 0;
  int rounds = 0;
  RunKernel({dim3(2), dim3(kThreads)}, [&] {
    // Variables of a thread survive its waiting.
    const int own = Thread() * 7;
    for (int round = 1; round <= 3; ++round) {
      ++arrived;
      __syncthreads();
      ASSERT_EQ(arrived, round * kThreads);
      ASSERT_EQ(own, Thread() * 7);
      __syncthreads();
    }
    __syncthreads();
    if (Thread() == 0) {
      ++rounds;
      arrived = 0;
    }
  });
  EXPECT_EQ(rounds, 2);
}

TEST(CudaEmulation, SharedMemoryIsOneForABlockAndStartsAsNaN) {
  constexpr int kThreads = 64;
  std::vector<float> out(2 * kThreads);
  int not_nan = 0;
  RunKernel({dim3(2), dim3(kThreads), kThreads * sizeof(float)}, [&] {
    __shared__ int fixed[kThreads];
    auto* dynamic = static_cast<float*>(emulation::DynamicSharedMemory());
    if (!std::isnan(dynamic[Thread()])) ++not_nan;
    fixed[Thread()] = Thread();
    dynamic[Thread()] = static_cast<float>(Thread() + 1000 * static_cast<int>(blockIdx.x));
    __syncthreads();
    const int other = kThreads - 1 - Thread();
    out[blockIdx.x * kThreads + threadIdx.x] = dynamic[other] + static_cast<float>(fixed[other]);
  });
  EXPECT_EQ(not_nan, 0);
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(out[static_cast<size_t>(i)], static_cast<float>(2 * (kThreads - 1 - i)));
    EXPECT_EQ(out[static_cast<size_t>(kThreads + i)],
              static_cast<float>(1000 + 2 * (kThreads - 1 - i)));
  }
}

// Without the barrier, a neighbour's value is read too early in blocks that run forwards or in
// those that run backwards.
TEST(CudaEmulation, AMissingBarrierChangesTheResult) {
  constexpr int kThreads = 64;
  for (const bool with_barrier : {true, false}) {
    int wrong = 0;
    RunKernel({dim3(2), dim3(kThreads), kThreads * sizeof(float)}, [&] {
      auto* shared = static_cast<float*>(emulation::DynamicSharedMemory());
      shared[Thread()] = 1.0f;
      if (with_barrier) __syncthreads();
      if (shared[(Thread() + 1) % kThreads] != 1.0f) ++wrong;
    });
    EXPECT_EQ(wrong == 0, with_barrier);
  }
}

// Without the second barrier, a warp that runs ahead overwrites what others have yet to read.
TEST(CudaEmulation, AWarpThatRunsAheadChangesTheResult) {
  constexpr int kWarps = 4;
  for (const bool with_barrier : {true, false}) {
    int wrong = 0;
    RunKernel({dim3(4), dim3(32 * kWarps)}, [&] {
      __shared__ int rounds[kWarps];
      const int warp = Thread() / 32;
      for (int round = 0; round < 3; ++round) {
        const unsigned everyone = __ballot_sync(kAll, true);
        if (Thread() % 32 == 0) rounds[warp] = round;
        __syncthreads();
        if (everyone != kAll || rounds[(warp + 1) % kWarps] != round) ++wrong;
        if (with_barrier) __syncthreads();
      }
    });
    EXPECT_EQ(wrong == 0, with_barrier);
  }
}

// Runs one warp and returns what each lane computes.
template <typename Function>
std::vector<int> OfLanes(Function function) {
  std::vector<int> results(32);
  RunKernel({dim3(1), dim3(32)}, [&] { results[threadIdx.x] = function(Thread()); });
  return results;
}

template <typename Function>
std::vector<int> Expected(Function function) {
  std::vector<int> results(32);
  for (int lane = 0; lane < 32; ++lane) results[static_cast<size_t>(lane)] = function(lane);
  return results;
}

TEST(CudaEmulation, ShufflesReadTheLaneTheyName) {
  EXPECT_EQ(OfLanes([](int i) { return __shfl_xor_sync(kAll, 3 * i, 5); }),
            Expected([](int i) { return 3 * (i ^ 5); }));
  EXPECT_EQ(OfLanes([](int i) { return __shfl_sync(kAll, 3 * i, 31 - i); }),
            Expected([](int i) { return 3 * (31 - i); }));
  EXPECT_EQ(OfLanes([](int i) { return __shfl_down_sync(kAll, i, 3u); }),
            Expected([](int i) { return i + 3 < 32 ? i + 3 : i; }));
  EXPECT_EQ(OfLanes([](int i) { return __shfl_up_sync(kAll, i, 3u); }),
            Expected([](int i) { return i >= 3 ? i - 3 : i; }));
}

TEST(CudaEmulation, ShufflesStayInTheirSegment) {
  EXPECT_EQ(OfLanes([](int i) { return __shfl_sync(kAll, i, 9, 8); }),
            Expected([](int i) { return i / 8 * 8 + 1; }));
  EXPECT_EQ(OfLanes([](int i) { return __shfl_down_sync(kAll, i, 2u, 4); }),
            Expected([](int i) { return i % 4 < 2 ? i + 2 : i; }));
  EXPECT_EQ(OfLanes([](int i) { return __shfl_up_sync(kAll, i, 2u, 4); }),
            Expected([](int i) { return i % 4 >= 2 ? i - 2 : i; }));
}

TEST(CudaEmulation, HalvesOfAWarpMayMeetApart) {
  EXPECT_EQ(OfLanes([](int i) {
              const unsigned half = i < 16 ? 0x0000ffffu : 0xffff0000u;
              int value = i;
              // The halves take part in different numbers of collectives.
              for (int round = 0; round < (i < 16 ? 1 : 3); ++round) {
                value = __shfl_xor_sync(half, value, 1);
              }
              return __shfl_xor_sync(kAll, value, 16);
            }),
            Expected([](int i) { return (i ^ 16) ^ 1; }));
}

TEST(CudaEmulation, VotesCountTheLanesOfTheMask) {
  EXPECT_EQ(OfLanes([](int i) { return static_cast<int>(__ballot_sync(kAll, i % 3 == 0)); }),
            Expected([](int) { return 0x49249249; }));
  EXPECT_EQ(OfLanes([](int i) {
              return static_cast<int>(__any_sync(kAll, i == 7)) * 2 +
                     static_cast<int>(__all_sync(kAll, i != 7));
            }),
            Expected([](int) { return 2; }));
}

TEST(CudaEmulation, DoublesAndSequencesOfShufflesReduce) {
  std::vector<double> sums(96);
  RunKernel({dim3(1), dim3(96)}, [&] {
    double value = 1.0 + 1e-9 * Thread();
    for (int distance = 16; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(kAll, value, distance);
    }
    sums[threadIdx.x] = value;
  });
  for (int i = 0; i < 96; ++i) {
    const double first = 32 * (i / 32);
    EXPECT_NEAR(sums[static_cast<size_t>(i)], 32 + 1e-9 * (32 * first + 496), 1e-12);
  }
}

TEST(CudaEmulation, AtomicsReturnTheOldValue) {
  int count = 0;
  float sum = 0;
  unsigned largest = 0;
  std::set<int> tickets;
  RunKernel({dim3(3), dim3(50)}, [&] {
    tickets.insert(atomicAdd(&count, 1));
    atomicAdd(&sum, 0.5f);
    atomicMax(&largest, blockIdx.x * 100 + threadIdx.x);
  });
  EXPECT_EQ(count, 150);
  EXPECT_EQ(tickets.size(), 150u);
  EXPECT_EQ(sum, 75.0f);
  EXPECT_EQ(largest, 249u);
}

TEST(CudaEmulation, ManyBlocksReuseTheFibers) {
  int64_t total = 0;
  RunKernel({dim3(200), dim3(1024)}, [&] {
    int value = 1;
    for (int distance = 16; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(kAll, value, distance);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) total += value;
  });
  EXPECT_EQ(total, 200 * 1024);
}

TEST(CudaEmulation, RanksRunKernelsSideBySide) {
  std::vector<int64_t> totals(4);
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < totals.size(); ++rank) {
    ranks.emplace_back([&totals, rank] {
      RunKernel({dim3(20), dim3(64)}, [&totals, rank] {
        __shared__ int64_t partial[64];
        partial[threadIdx.x] = static_cast<int64_t>(rank + 1);
        __syncthreads();
        if (threadIdx.x == 0) totals[rank] += std::accumulate(partial, partial + 64, int64_t{0});
      });
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(totals, (std::vector<int64_t>{1280, 2560, 3840, 5120}));
}

TEST(CudaEmulation, SubmittedWorkRunsAtOnceOrIsWrittenDown) {
  int runs = 0;
  emulation::Stream stream;
  emulation::Submit(&stream, [&] { ++runs; });
  EXPECT_EQ(runs, 1);
  std::vector<std::function<void()>> recording;
  stream.recording = &recording;
  emulation::Submit(&stream, [&] { ++runs; });
  EXPECT_EQ(runs, 1);
  ASSERT_EQ(recording.size(), 1u);
  recording[0]();
  EXPECT_EQ(runs, 2);
}

const LaunchShape kWarpAt{dim3(2), dim3(32), 0, "norm.cu", 7};

TEST(CudaEmulationDeathTest, ABarrierNotReachedByAll) {
  EXPECT_DEATH(RunKernel({dim3(1), dim3(64), 0, "norm.cu", 7},
                         [] {
                           if (Thread() != 5) __syncthreads();
                         }),
               "norm.cu:7, block \\(0, 0, 0\\).*63 of 64 threads wait at a barrier");
}

TEST(CudaEmulationDeathTest, AShuffleThatALaneMisses) {
  EXPECT_DEATH(RunKernel(kWarpAt,
                         [] {
                           if (Thread() != 9) __shfl_xor_sync(kAll, 1, 1);
                         }),
               "waits in a collective of its warp for lane 9, which has ended");
  EXPECT_DEATH(RunKernel(kWarpAt,
                         [] {
                           if (Thread() == 9) __syncthreads();
                           __shfl_xor_sync(kAll, 1, 1);
                         }),
               "for lane 9, which waits at a barrier");
}

TEST(CudaEmulationDeathTest, AShuffleFromALaneThatTakesNoPart) {
  EXPECT_DEATH(RunKernel(kWarpAt,
                         [] {
                           if (Thread() < 16) __shfl_xor_sync(0xffffu, 1, 16);
                         }),
               "lane 0 reads lane 16, which takes no part");
}

TEST(CudaEmulationDeathTest, LanesThatDisagree) {
  EXPECT_DEATH(RunKernel(kWarpAt,
                         [] {
                           if (Thread() < 16) {
                             __shfl_xor_sync(kAll, 1, 1);
                           } else {
                             __ballot_sync(kAll, true);
                           }
                         }),
               "for lane 16, which waits in another");
  EXPECT_DEATH(RunKernel(kWarpAt, [] { __syncwarp(0xffffu); }), "whose mask omits it");
}

TEST(CudaEmulationDeathTest, AWarpThatIsNotWhole) {
  EXPECT_DEATH(RunKernel({dim3(1), dim3(40)}, [] { __syncwarp(); }),
               "over lanes 0xffffffff of a warp that has only 0xff");
}

TEST(CudaEmulationDeathTest, WhatNoGpuCouldLaunch) {
  EXPECT_DEATH(RunKernel({dim3(1), dim3(1025)}, [] {}), "a block of 1025 threads");
  EXPECT_DEATH(RunKernel({dim3(1), dim3(1), 1 << 20}, [] {}), "bytes of dynamic shared memory");
}

}  // namespace
}  // namespace trimtab
