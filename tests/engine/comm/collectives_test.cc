// Every collective over ranks x sizes x dtypes, in place and not. Values are small integers, so
// sums are exact in every dtype and are compared for equality with a closed form.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
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
  for (int64_t i = 0; i < tensor.numel(); ++i) Set(tensor, i, Value(rank, i));
}

/// The first i at which tensor[i] is not `expected(i)`; -1 if there is none.
template <typename Expected>
int64_t FirstDifference(const Tensor& tensor, const Expected& expected) {
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (Get(tensor, i) != expected(i)) return i;
  }
  return -1;
}

class Collectives : public testing::TestWithParam<std::tuple<int, DType>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }

  /// Runs `body(comm, device, count)` for every count within one life of the group.
  template <typename Body>
  void ForEachCount(const Body& body) const {
    RunRanksCleanly(ranks(), [&](Communicator& comm, Device& device) {
      for (const int64_t count : kCounts) {
        SCOPED_TRACE(testing::Message() << count << " elements, rank " << comm.rank());
        body(comm, device, count);
      }
    });
  }
  GuardedTensor Make(Device& device, int64_t count) const {
    return GuardedTensor(device, count, std::get<1>(GetParam()));
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
    for (int64_t i = 0; i < count; ++i) Set(buffer.tensor(), i, value(comm.rank(), i));
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
    comm.AllToAll(in.tensor(), out.tensor());
    const auto expected = [&](int64_t i) {
      return Value(static_cast<int>(i / count), count * comm.rank() + i % count);
    };
    EXPECT_EQ(FirstDifference(out.tensor(), expected), -1);
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

INSTANTIATE_TEST_SUITE_P(RanksAndDtypes, Collectives,
                         testing::Combine(testing::Values(1, 2, 3, 4, 7, 8),
                                          testing::Values(DType::kF32, DType::kBf16, DType::kF16,
                                                          DType::kI32, DType::kI64)),
                         [](const auto& param) {
                           return fmt::format("{}ranks_{}", std::get<0>(param.param),
                                              Name(std::get<1>(param.param)));
                         });

// What has no sum still travels: fp8 weights and the lower halves of master weights.
TEST(RawBits, AreGatheredAndNeverAdded) {
  for (const DType dtype : {DType::kU16, DType::kF8E4M3, DType::kF8E5M2}) {
    RunRanksCleanly(3, [dtype](Communicator& comm, Device& device) {
      const auto size = static_cast<size_t>(5 * SizeOf(dtype));
      GuardedTensor part(device, 5, dtype);
      GuardedTensor whole(device, 15, dtype);
      std::memset(part.tensor().raw(), 0x70 + comm.rank(), size);
      comm.AllGather(part.tensor(), whole.tensor());
      const auto* bytes = static_cast<const char*>(whole.tensor().raw());
      for (size_t i = 0; i < 3 * size; ++i) {
        ASSERT_EQ(bytes[i], static_cast<char>(0x70 + i / size)) << Name(dtype);
      }
      EXPECT_TRUE(whole.Intact());
    });
    const void* buffer = nullptr;
    void* target = nullptr;
    EXPECT_DEATH(ReduceRange(dtype, ReduceOp::kSum, {&buffer, 1}, {&target, 1}, 0, 0, 0),
                 "no sum or maximum of");
  }
}

TEST(Reduction, LargeBufferIsExact) {
  constexpr int64_t kCount = (int64_t{1} << 20) + 3;
  RunRanksCleanly(3, [](Communicator& comm, Device& device) {
    GuardedTensor buffer(device, kCount, DType::kF32);
    FillFrom(buffer.tensor(), comm.rank());
    comm.AllReduce(buffer.tensor());
    EXPECT_EQ(FirstDifference(buffer.tensor(), [](int64_t i) { return SumOfValues(3, i); }), -1);
  });
}

// Sums of arbitrary floats depend on the order of the additions: it is that of the ranks, on every
// rank and in every run, to the bit.
TEST(Reduction, AddsInRankOrderToTheBit) {
  constexpr int kRanks = 7;
  constexpr int64_t kCount = 5003;
  std::vector<std::vector<float>> inputs(kRanks, std::vector<float>(kCount));
  std::mt19937 random(20240607);
  std::normal_distribution<float> normal;
  for (auto& input : inputs) {
    for (float& x : input) x = normal(random);
  }
  std::vector<float> expected = inputs[0];
  for (int rank = 1; rank < kRanks; ++rank) {
    for (size_t i = 0; i < kCount; ++i) expected[i] += inputs[static_cast<size_t>(rank)][i];
  }
  for (int repeat = 0; repeat < 5; ++repeat) {
    RunRanksCleanly(kRanks, [&](Communicator& comm, Device& device) {
      Tensor buffer = Tensor::Empty(device, {kCount}, DType::kF32, MemoryTag::kCommunication);
      CopyFromHost(buffer, inputs[static_cast<size_t>(comm.rank())]);
      comm.AllReduce(buffer);
      for (int64_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(buffer.f32()[i]),
                  std::bit_cast<uint32_t>(expected[static_cast<size_t>(i)]));
      }
    });
  }
}

TEST(Reduction, RoundsSixteenBitSumsOnce) {
  // 256 + 1 + 1 with bf16's 8 significant bits: rounding after each addition would stay at 256.
  // The same for f16, with 11 bits, at 2048.
  for (const auto& [dtype, large] : {std::pair{DType::kBf16, 256.0}, {DType::kF16, 2048.0}}) {
    RunRanksCleanly(3, [dtype = dtype, large = large](Communicator& comm, Device& device) {
      GuardedTensor buffer(device, 9, dtype);
      for (int64_t i = 0; i < 9; ++i) Set(buffer.tensor(), i, comm.rank() == 0 ? large : 1.0);
      comm.AllReduce(buffer.tensor());
      EXPECT_EQ(FirstDifference(buffer.tensor(), [large](int64_t) { return large + 2; }), -1);
    });
  }
}

TEST(Reduction, NotANumberReachesEveryRank) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    RunRanksCleanly(3, [op](Communicator& comm, Device& device) {
      GuardedTensor buffer(device, 3, DType::kF32);
      for (int64_t i = 0; i < 3; ++i) Set(buffer.tensor(), i, i == comm.rank() ? NAN : 1.0);
      comm.AllReduce(buffer.tensor(), op);
      for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(Get(buffer.tensor(), i)));
    });
  }
}

TEST(Reduction, IntegersWrapAround) {
  RunRanksCleanly(2, [](Communicator& comm, Device& device) {
    GuardedTensor buffer(device, 1, DType::kI32);
    buffer.tensor().i32()[0] = comm.rank() == 0 ? INT32_MAX : 1;
    comm.AllReduce(buffer.tensor());
    EXPECT_EQ(buffer.tensor().i32()[0], INT32_MIN);
  });
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

// Ranks that run ahead must not disturb those that are still leaving the previous collective.
TEST(Barrier, ManySmallCollectivesInARow) {
  RunRanksCleanly(4, [](Communicator& comm, Device& device) {
    GuardedTensor buffer(device, 3, DType::kI64);
    for (int round = 0; round < 2000; ++round) {
      for (int64_t i = 0; i < 3; ++i) Set(buffer.tensor(), i, comm.rank() + round);
      comm.AllReduce(buffer.tensor());
      ASSERT_EQ(Get(buffer.tensor(), 2), 6 + 4 * round);
    }
  });
}

}  // namespace
}  // namespace trimtab
