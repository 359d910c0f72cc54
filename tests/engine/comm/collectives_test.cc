// Every collective over ranks x sizes x dtypes, in place and not, whatever the ranks are. Values
// are small integers, so sums are exact in every dtype and are compared for equality with a closed
// form.
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <tuple>

#include "engine/comm/reduce_kernels.h"
#include "tests/engine/comm/rank_threads.h"

namespace trimtab {
namespace {

// Elements per rank or buffer: nothing, one, fewer and more than the ranks, either side of a slice
// and of a block of the reduction, and more than one of its blocks for each of 8 ranks.
constexpr int64_t kCounts[] = {0, 1, 5, 255, 256, 1031, 20011};

/// Element i of rank r's input. At most 8 * 12 + 36 when summed over 8 ranks, and so below 2^8.
double Value(int rank, int64_t i) { return static_cast<double>(i % 13 + rank + 1); }

double SumOfValues(int ranks, int64_t i) {
  return static_cast<double>(ranks * (i % 13) + ranks * (ranks + 1) / 2);
}

void FillFrom(Tensor& tensor, int rank) {
  Fill(tensor, [rank](int64_t i) { return Value(rank, i); });
}

/// The first i at which tensor[i] is not `expected(i)`; -1 if there is none.
template <typename Expected>
int64_t FirstDifference(const Tensor& tensor, const Expected& expected) {
  const std::vector<double> values = Load(tensor);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (values[static_cast<size_t>(i)] != expected(i)) return i;
  }
  return -1;
}

class Collectives : public testing::TestWithParam<std::tuple<RankKind, int, DType>> {
 protected:
  void SetUp() override {
    const std::string reason = WhyNot(kind(), ranks());
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  RankKind kind() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }

  /// Runs `body(comm, device, count)` for every count within one life of the group.
  template <typename Body>
  void ForEachCount(const Body& body) const {
    RunRanksCleanly(kind(), ranks(), [&](Communicator& comm, Device& device) {
      for (const int64_t count : kCounts) {
        SCOPED_TRACE(testing::Message() << count << " elements, rank " << comm.rank());
        body(comm, device, count);
      }
    });
  }
  GuardedTensor Make(Device& device, int64_t count) const {
    return GuardedTensor(device, count, std::get<2>(GetParam()));
  }
};

TEST_P(Collectives, AllReduceSums) {
  ForEachCount([this](Communicator& comm, Device& device, int64_t count) {
    GuardedTensor buffer = Make(device, count);
    FillFrom(buffer.tensor(), comm.rank());
    comm.AllReduce(buffer.tensor());
    const auto sum = [this](int64_t i) { return SumOfValues(ranks(), i); };
    EXPECT_EQ(FirstDifference(buffer.tensor(), sum), -1);
    EXPECT_TRUE(buffer.Intact());
  });
}

TEST_P(Collectives, AllReduceTakesTheMaximum) {
  ForEachCount([this](Communicator& comm, Device& device, int64_t count) {
    GuardedTensor buffer = Make(device, count);
    // Element i is largest on rank i % ranks, and negative elsewhere.
    const auto value = [this](int rank, int64_t i) {
      return i % ranks() == rank ? Value(rank, i) : -Value(rank, i);
    };
    Fill(buffer.tensor(), [&](int64_t i) { return value(comm.rank(), i); });
    comm.AllReduce(buffer.tensor(), ReduceOp::kMax);
    const auto maximum = [this](int64_t i) { return Value(static_cast<int>(i % ranks()), i); };
    EXPECT_EQ(FirstDifference(buffer.tensor(), maximum), -1);
    EXPECT_TRUE(buffer.Intact());
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsPart) {
  ForEachCount([this](Communicator& comm, Device& device, int64_t count) {
    GuardedTensor in = Make(device, count * ranks());
    FillFrom(in.tensor(), comm.rank());
    GuardedTensor out = Make(device, count);
    comm.ReduceScatter(in.tensor(), out.tensor());
    const int64_t first = count * comm.rank();
    const auto sum = [&](int64_t i) { return SumOfValues(ranks(), first + i); };
    EXPECT_EQ(FirstDifference(out.tensor(), sum), -1);
    // Not in place: the input is left alone.
    const auto value = [&comm](int64_t i) { return Value(comm.rank(), i); };
    EXPECT_EQ(FirstDifference(in.tensor(), value), -1);
    EXPECT_TRUE(in.Intact() && out.Intact());

    Tensor own = in.tensor().Slice(first, {count});
    comm.ReduceScatter(in.tensor(), own);
    EXPECT_EQ(FirstDifference(own, sum), -1) << "in place";
    EXPECT_TRUE(in.Intact());
  });
}

TEST_P(Collectives, AllGatherCollectsInRankOrder) {
  ForEachCount([this](Communicator& comm, Device& device, int64_t count) {
    GuardedTensor in = Make(device, count);
    FillFrom(in.tensor(), comm.rank());
    GuardedTensor out = Make(device, count * ranks());
    comm.AllGather(in.tensor(), out.tensor());
    const auto gathered = [count](int64_t i) {
      return Value(static_cast<int>(i / count), i % count);
    };
    EXPECT_EQ(FirstDifference(out.tensor(), gathered), -1);
    EXPECT_TRUE(in.Intact() && out.Intact());

    GuardedTensor whole = Make(device, count * ranks());
    Tensor own = whole.tensor().Slice(count * comm.rank(), {count});
    FillFrom(own, comm.rank());
    comm.AllGather(own, whole.tensor());
    EXPECT_EQ(FirstDifference(whole.tensor(), gathered), -1) << "in place";
    EXPECT_TRUE(whole.Intact());
  });
}

TEST_P(Collectives, BroadcastCopiesFromEveryRoot) {
  ForEachCount([this](Communicator& comm, Device& device, int64_t count) {
    for (int root = 0; root < ranks(); ++root) {
      GuardedTensor buffer = Make(device, count);
      FillFrom(buffer.tensor(), comm.rank());
      comm.Broadcast(buffer.tensor(), root);
      const auto value = [root](int64_t i) { return Value(root, i); };
      EXPECT_EQ(FirstDifference(buffer.tensor(), value), -1) << "root " << root;
      EXPECT_TRUE(buffer.Intact());
    }
  });
}

TEST_P(Collectives, AllToAllTransposesParts) {
  ForEachCount([this](Communicator& comm, Device& device, int64_t count) {
    GuardedTensor in = Make(device, count * ranks());
    FillFrom(in.tensor(), comm.rank());
    GuardedTensor out = Make(device, count * ranks());
    std::vector<BufferPart> parts;
    for (int peer = 0; peer < ranks(); ++peer) parts.push_back({peer * count, count});
    comm.AllToAll(in.tensor(), parts, out.tensor(), parts);
    const auto expected = [&](int64_t i) {
      return Value(static_cast<int>(i / count), count * comm.rank() + i % count);
    };
    EXPECT_EQ(FirstDifference(out.tensor(), expected), -1);
    EXPECT_TRUE(in.Intact() && out.Intact());
  });
}

// Rank r sends rank p the elements from r + p on, (r + 2 p) % 5 times `count` / 4 of them: parts
// overlap, and some are empty. They are put one behind the other, with a gap of one.
TEST_P(Collectives, AllToAllOfUnevenParts) {
  ForEachCount([this](Communicator& comm, Device& device, int64_t count) {
    const auto size = [count](int from, int to) { return (from + 2 * to) % 5 * (count / 4); };
    GuardedTensor in = Make(device, count + 2 * ranks());
    FillFrom(in.tensor(), comm.rank());
    std::vector<BufferPart> send;
    std::vector<BufferPart> receive;
    std::vector<double> expected;
    for (int peer = 0; peer < ranks(); ++peer) {
      send.push_back({comm.rank() + peer, size(comm.rank(), peer)});
      const int64_t received = size(peer, comm.rank());
      receive.push_back({static_cast<int64_t>(expected.size()), received});
      for (int64_t i = 0; i < received; ++i) {
        expected.push_back(Value(peer, comm.rank() + peer + i));
      }
      expected.push_back(7);
    }
    GuardedTensor out = Make(device, static_cast<int64_t>(expected.size()));
    Fill(out.tensor(), [](int64_t) { return 7; });
    comm.AllToAll(in.tensor(), send, out.tensor(), receive);
    EXPECT_EQ(Load(out.tensor()), expected);
    EXPECT_TRUE(in.Intact() && out.Intact());
  });
}

TEST_P(Collectives, MessagesGoAroundTheRing) {
  if (ranks() == 1) return;  // nobody to talk to
  ForEachCount([this](Communicator& comm, Device& device, int64_t count) {
    GuardedTensor sent = Make(device, count);
    GuardedTensor received = Make(device, count);
    FillFrom(sent.tensor(), comm.rank());
    const int next = (comm.rank() + 1) % ranks();
    const int previous = (comm.rank() + ranks() - 1) % ranks();
    // A send waits for its receive, so somebody has to receive first.
    if (comm.rank() == 0) {
      comm.Recv(received.tensor(), previous);
      comm.Send(sent.tensor(), next);
    } else {
      comm.Send(sent.tensor(), next);
      comm.Recv(received.tensor(), previous);
    }
    const auto value = [previous](int64_t i) { return Value(previous, i); };
    EXPECT_EQ(FirstDifference(received.tensor(), value), -1);
    EXPECT_TRUE(received.Intact());
  });
}

const auto kDtypes =
    testing::Values(DType::kF32, DType::kBf16, DType::kF16, DType::kI32, DType::kI64);

std::string CaseName(const testing::TestParamInfo<Collectives::ParamType>& info) {
  const auto& [kind, ranks, dtype] = info.param;
  return fmt::format("{}ranks_{}_{}", ranks, Name(dtype), Name(kind));
}

/// Nothing where mpirun did not start this process: mpi_test does that.
std::vector<RankKind> Processes() {
  if (WhyNot(RankKind::kCpuProcesses, 1).empty()) return {RankKind::kCpuProcesses};
  return {};
}

std::vector<RankKind> CudaProcesses() {
  if (WhyNot(RankKind::kCpuProcesses, 2).empty()) return {RankKind::kCudaProcesses};
  return {};
}

// There are as many processes as mpirun started: the tests of fewer ranks use the first ones.
INSTANTIATE_TEST_SUITE_P(Processes, Collectives,
                         testing::Combine(testing::ValuesIn(Processes()),
                                          testing::Values(1, 2, 3, 4), kDtypes),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(CudaProcesses, Collectives,
                         testing::Combine(testing::ValuesIn(CudaProcesses()), testing::Values(2),
                                          kDtypes),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Threads, Collectives,
                         testing::Combine(testing::Values(RankKind::kCpuThreads),
                                          testing::Values(1, 2, 3, 4, 7, 8), kDtypes),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(EmulatedCuda, Collectives,
                         testing::Combine(testing::Values(RankKind::kEmulatedCudaThreads),
                                          testing::Values(1, 2, 3, 8), kDtypes),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Cuda, Collectives,
                         testing::Combine(testing::Values(RankKind::kCudaThreads),
                                          testing::Values(2, 8), kDtypes),
                         CaseName);

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
