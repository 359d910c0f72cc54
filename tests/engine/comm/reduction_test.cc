// What collectives owe to all kinds of ranks alike: the order and the rounding of additions, moves
// of what cannot be added, ranks that run ahead.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <random>

#include "engine/comm/inproc/reduce_kernels.h"
#include "tests/engine/comm/exact_values.h"

namespace trimtab {
namespace {

/// The same bits on every kind of ranks.
class Reduction : public testing::TestWithParam<RankKind> {
 protected:
  static constexpr int kRanks = 4;
  void SetUp() override {
    const std::string reason = WhyNot(GetParam(), kRanks);
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_P(Reduction, LargeBufferIsExact) {
  // More than the MPI communicator reduces at a time.
  constexpr int64_t kCount = 4 * (int64_t{1} << 18) + 3;
  RunRanksCleanly(GetParam(), kRanks, [](Communicator& comm, Device& device) {
    GuardedTensor buffer(device, kCount, DType::kF32);
    FillFrom(buffer.tensor(), comm.rank());
    comm.AllReduce(buffer.tensor());
    const auto sum = [](int64_t i) { return SumOfValues(kRanks, i); };
    EXPECT_EQ(FirstDifference(buffer.tensor(), sum), -1);
    EXPECT_TRUE(buffer.Intact());
  });
}

// Sums of arbitrary floats depend on the order of the additions: it is that of the ranks, on every
// rank and in every run, to the bit.
TEST_P(Reduction, AddsInRankOrderToTheBit) {
  constexpr int64_t kCount = 5003;
  std::vector<std::vector<float>> inputs(kRanks, std::vector<float>(kCount));
  std::mt19937 random(20240607);
  std::normal_distribution<float> normal;
  for (auto& input : inputs) {
    for (float& x : input) x = normal(random);
  }
  std::vector<float> expected = inputs[0];
  for (size_t rank = 1; rank < kRanks; ++rank) {
    for (size_t i = 0; i < kCount; ++i) expected[i] += inputs[rank][i];
  }
  for (int repeat = 0; repeat < 5; ++repeat) {
    RunRanksCleanly(GetParam(), kRanks, [&](Communicator& comm, Device& device) {
      Tensor buffer = Tensor::Empty(device, {kCount}, DType::kF32, MemoryTag::kCommunication);
      CopyFromHost(buffer, inputs[static_cast<size_t>(comm.rank())]);
      comm.AllReduce(buffer);
      std::vector<float> sums(kCount);
      CopyToHost(buffer, sums);
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(sums[i]), std::bit_cast<uint32_t>(expected[i])) << i;
      }
    });
  }
}

TEST_P(Reduction, RoundsSixteenBitSumsOnce) {
  // 256 + 1 + 1 + 2 with bf16's 8 significant bits: rounding after each addition would stay at 256
  // until the last. The same for f16, with 11 bits, at 2048.
  for (const auto& [dtype, large] : {std::pair{DType::kBf16, 256.0}, {DType::kF16, 2048.0}}) {
    RunRanksCleanly(GetParam(), kRanks,
                    [dtype = dtype, large = large](Communicator& comm, Device& device) {
                      const double values[] = {large, 1, 1, 2};
                      GuardedTensor buffer(device, 9, dtype);
                      Fill(buffer.tensor(), [&](int64_t) { return values[comm.rank()]; });
                      comm.AllReduce(buffer.tensor());
                      const auto sum = [large](int64_t) { return large + 4; };
                      EXPECT_EQ(FirstDifference(buffer.tensor(), sum), -1);
                    });
  }
}

TEST_P(Reduction, NotANumberReachesEveryRank) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    RunRanksCleanly(GetParam(), kRanks, [op](Communicator& comm, Device& device) {
      GuardedTensor buffer(device, kRanks, DType::kF32);
      Fill(buffer.tensor(), [&](int64_t i) { return i == comm.rank() ? NAN : 1.0; });
      comm.AllReduce(buffer.tensor(), op);
      for (const double value : Load(buffer.tensor())) EXPECT_TRUE(std::isnan(value));
    });
  }
}

TEST_P(Reduction, IntegersWrapAround) {
  RunRanksCleanly(GetParam(), kRanks, [](Communicator& comm, Device& device) {
    GuardedTensor buffer(device, 1, DType::kI32);
    Fill(buffer.tensor(), [&](int64_t) { return comm.rank() == 0 ? INT32_MAX : 1; });
    comm.AllReduce(buffer.tensor());
    EXPECT_EQ(Load(buffer.tensor()), std::vector<double>{INT32_MIN + 2.0});
  });
}

// The asynchronous forms give the same, and their buffers may be used once they were waited for.
TEST_P(Reduction, AsynchronousFormsGiveTheSame) {
  RunRanksCleanly(GetParam(), kRanks, [](Communicator& comm, Device& device) {
    GuardedTensor sum(device, 100, DType::kF32);
    GuardedTensor scattered(device, 25, DType::kF32);
    GuardedTensor parts(device, 100, DType::kF32);
    GuardedTensor gathered(device, 100, DType::kF32);
    FillFrom(sum.tensor(), comm.rank());
    FillFrom(parts.tensor(), comm.rank());
    CommHandle reduced = comm.AllReduceAsync(sum.tensor());
    CommHandle scatter = comm.ReduceScatterAsync(parts.tensor(), scattered.tensor());
    scatter.Wait();
    CommHandle gather = comm.AllGatherAsync(scattered.tensor(), gathered.tensor());
    gather.Wait();
    gather.Wait();  // there is nothing left to wait for
    reduced.Wait();
    const auto expected = [](int64_t i) { return SumOfValues(kRanks, i); };
    EXPECT_EQ(FirstDifference(sum.tensor(), expected), -1);
    EXPECT_EQ(FirstDifference(gathered.tensor(), expected), -1);
  });
}

// What moves without being added up may be of any type.
TEST_P(Reduction, MovesTypesThatCannotBeAdded) {
  for (const DType dtype : {DType::kF8E4M3, DType::kF8E5M2, DType::kU16}) {
    RunRanksCleanly(GetParam(), kRanks, [dtype](Communicator& comm, Device& device) {
      Tensor own = Tensor::Empty(device, {3}, dtype, MemoryTag::kCommunication);
      Tensor all = Tensor::Empty(device, {3 * kRanks}, dtype, MemoryTag::kCommunication);
      const std::vector<char> bytes(static_cast<size_t>(own.bytes()),
                                    static_cast<char>('a' + comm.rank()));
      device.CopyFromHost(own.raw(), bytes.data(), own.bytes());
      comm.AllGather(own, all);
      std::string result(static_cast<size_t>(all.bytes()), ' ');
      device.CopyToHost(result.data(), all.raw(), all.bytes());
      std::string expected;
      for (int rank = 0; rank < kRanks; ++rank) {
        expected.append(bytes.size(), static_cast<char>('a' + rank));
      }
      EXPECT_EQ(result, expected);
    });
  }
}

// Ranks that run ahead must not disturb those that are still leaving the previous collective.
TEST_P(Reduction, ManySmallCollectivesInARow) {
  const int rounds = GetParam() == RankKind::kCpuThreads ? 2000 : 300;
  RunRanksCleanly(GetParam(), kRanks, [rounds](Communicator& comm, Device& device) {
    GuardedTensor buffer(device, 3, DType::kI64);
    for (int round = 0; round < rounds; ++round) {
      Fill(buffer.tensor(), [&](int64_t) { return comm.rank() + round; });
      comm.AllReduce(buffer.tensor());
      ASSERT_EQ(Load(buffer.tensor())[2], 6 + 4 * round);
    }
  });
}

// What is small goes another way than what is large, and one may follow at once on the other.
TEST_P(Reduction, SmallAndLargeCollectivesInARow) {
  const int rounds = GetParam() == RankKind::kCpuThreads ? 600 : 100;
  RunRanksCleanly(GetParam(), kRanks, [rounds](Communicator& comm, Device& device) {
    GuardedTensor small(device, 3, DType::kI64);
    GuardedTensor large(device, 3000, DType::kI64);
    for (int round = 0; round < rounds; ++round) {
      Tensor& buffer = round % 3 == 2 ? large.tensor() : small.tensor();
      Fill(buffer, [&](int64_t i) { return comm.rank() + round + static_cast<double>(i); });
      comm.AllReduce(buffer);
      const auto sum = [round](int64_t i) { return 6 + 4 * (round + static_cast<double>(i)); };
      ASSERT_EQ(FirstDifference(buffer, sum), -1) << "round " << round;
    }
  });
}

// Ranks may differ in which way theirs would go.
TEST_P(Reduction, AllToAllOfSmallAndLargeInputs) {
  RunRanksCleanly(GetParam(), kRanks, [](Communicator& comm, Device& device) {
    for (int round = 0; round < 40; ++round) {
      // One rank sends a lot to each, in turn, and in every fifth round nobody does.
      const auto count = [round](int from) { return from == round % 5 ? 2000 : 2; };
      GuardedTensor in(device, kRanks * count(comm.rank()), DType::kI32);
      Fill(in.tensor(), [&](int64_t) { return comm.rank() + round; });
      std::vector<BufferPart> send;
      std::vector<BufferPart> receive;
      std::vector<double> expected;
      for (int peer = 0; peer < kRanks; ++peer) {
        send.push_back({peer * count(comm.rank()), count(comm.rank())});
        receive.push_back({static_cast<int64_t>(expected.size()), count(peer)});
        expected.resize(expected.size() + static_cast<size_t>(count(peer)), peer + round);
      }
      GuardedTensor out(device, static_cast<int64_t>(expected.size()), DType::kI32);
      comm.AllToAll(in.tensor(), send, out.tensor(), receive);
      ASSERT_EQ(Load(out.tensor()), expected) << "round " << round;
    }
  });
}

std::string KindName(const testing::TestParamInfo<RankKind>& info) { return Name(info.param); }

INSTANTIATE_TEST_SUITE_P(Processes, Reduction, testing::ValuesIn(Processes()), KindName);
INSTANTIATE_TEST_SUITE_P(Threads, Reduction,
                         testing::Values(RankKind::kCpuThreads, RankKind::kEmulatedCudaThreads,
                                         RankKind::kCudaThreads),
                         KindName);

TEST(RawBits, AreNeverAdded) {
  for (const DType dtype : {DType::kU16, DType::kF8E4M3, DType::kF8E5M2}) {
    const void* buffer = nullptr;
    void* target = nullptr;
    EXPECT_DEATH(ReduceRange(dtype, ReduceOp::kSum, {&buffer, 1}, {&target, 1}, 0, 0, 0),
                 "no sum or maximum of");
  }
}

TEST(Barrier, NobodyPassesBeforeAllHaveCome) {
  constexpr int kRanks = 4;
  std::atomic<int> came{0};
  RunRanksCleanly(kRanks, [&came](Communicator& comm, Device&) {
    for (int round = 1; round <= 100; ++round) {
      ++came;
      comm.Barrier();
      EXPECT_EQ(came.load(), kRanks * round);
      comm.Barrier();
    }
  });
}

}  // namespace
}  // namespace trimtab
