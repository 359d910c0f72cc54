// Every collective over ranks x sizes x dtypes, in place and not, whatever the ranks are. Values
// are small integers, so sums are exact in every dtype and are compared for equality with a closed
// form.
#include <gtest/gtest.h>

#include <tuple>

#include "tests/engine/comm/exact_values.h"

namespace trimtab {
namespace {

// Elements per rank or buffer: nothing, one, fewer and more than the ranks, either side of a slice
// and of a block of the reduction, and more than one of its blocks for each of 8 ranks.
constexpr int64_t kCounts[] = {0, 1, 5, 255, 256, 1031, 20011};

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

}  // namespace
}  // namespace trimtab
