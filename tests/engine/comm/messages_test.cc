// Messages between two ranks that are under way at the same time, whatever the ranks are.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "tests/engine/comm/rank_threads.h"

namespace trimtab {
namespace {

class Messages : public testing::TestWithParam<std::tuple<RankKind, int>> {
 protected:
  void SetUp() override {
    const std::string reason = WhyNot(kind(), ranks());
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  RankKind kind() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
};

/// Element i of message `number` from rank `source` to rank `destination`.
double Value(int source, int destination, int number, int64_t i) {
  return static_cast<double>((source * 7 + destination * 5 + number * 3 + i) % 101);
}

/// What one rank submits in a round: message `number` to or from `peer`.
struct End {
  bool sends = false;
  int peer = 0;
  int number = 0;
};

/// Elements of a message, from nothing to what no transport sends in one go.
int64_t CountOf(const End& end, int rank) {
  constexpr int64_t kCounts[] = {0, 1, 257, 20011, 70001};
  const int source = end.sends ? rank : end.peer;
  return kCounts[(source + end.number) % 5];
}

/// Both ends of `each` messages between all pairs, both ways, as rank `rank` submits them: those of
/// one pair and direction in order, otherwise at random.
std::vector<End> RandomEnds(int ranks, int rank, int each, std::mt19937& random) {
  std::vector<std::pair<bool, int>> channels;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    for (int number = 0; number < each; ++number) {
      channels.push_back({true, peer});
      channels.push_back({false, peer});
    }
  }
  std::shuffle(channels.begin(), channels.end(), random);
  std::map<std::pair<bool, int>, int> numbers;
  std::vector<End> ends;
  for (const auto& channel : channels) {
    ends.push_back({channel.first, channel.second, numbers[channel]++});
  }
  return ends;
}

TEST_P(Messages, AnyNumberUnderWayInAnyOrder) {
  RunRanksCleanly(kind(), ranks(), [this](Communicator& comm, Device& device) {
    std::mt19937 random(static_cast<unsigned>(100 * ranks() + comm.rank()));
    for (int round = 0; round < 5; ++round) {
      const std::vector<End> ends = RandomEnds(ranks(), comm.rank(), 4, random);
      std::vector<GuardedTensor> buffers;
      std::vector<CommHandle> handles;
      for (const End& end : ends) {
        GuardedTensor& buffer =
            buffers.emplace_back(device, CountOf(end, comm.rank()), DType::kF32);
        if (end.sends) {
          Fill(buffer.tensor(),
               [&](int64_t i) { return Value(comm.rank(), end.peer, end.number, i); });
          handles.push_back(comm.SendAsync(buffer.tensor(), end.peer));
        } else {
          handles.push_back(comm.RecvAsync(buffer.tensor(), end.peer));
        }
      }
      std::vector<size_t> order(ends.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t each : order) {
        handles[each].Wait();
        const End& end = ends[each];
        ASSERT_TRUE(buffers[each].Intact());
        if (end.sends) continue;
        const std::vector<double> values = Load(buffers[each].tensor());
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_EQ(values[i], Value(end.peer, comm.rank(), end.number, static_cast<int64_t>(i)))
              << "message " << end.number << " from rank " << end.peer << ", element " << i;
        }
      }
    }
  });
}

constexpr int kMicroBatches = 12;
constexpr int64_t kCount = 30011;

// The middle of 1F1B: activations go up, gradients down, and both of a pair of neighbours send
// before they receive. Stage s adds s + 1 on the way up and multiplies by 2 on the way down.
TEST_P(Messages, PipelineSendsBothWaysAtOnce) {
  RunRanksCleanly(kind(), ranks(), [this](Communicator& comm, Device& device) {
    const int stage = comm.rank();
    const bool first = stage == 0;
    const bool last = stage == ranks() - 1;
    const int warmup = std::min(ranks() - 1 - stage, kMicroBatches);
    std::vector<CommHandle> sent;
    std::vector<Tensor> kept;
    const auto make = [&device] {
      return Tensor::Empty(device, {kCount}, DType::kF32, MemoryTag::kCommunication);
    };
    const auto map = [&](const Tensor& in, const auto& function) {
      std::vector<double> values = Load(in);
      for (double& value : values) value = function(value);
      Tensor out = make();
      Store(out, values);
      return out;
    };
    const auto receive = [&](int peer) {
      Tensor tensor = make();
      return std::pair(comm.RecvAsync(tensor, peer), tensor);
    };
    const auto send = [&](const Tensor& tensor, int peer) {
      sent.push_back(comm.SendAsync(tensor, peer));
    };
    std::vector<Tensor> outputs;
    const auto forward = [&](int micro_batch, Tensor in) {
      if (first) {
        in = make();
        Fill(in, [&](int64_t i) { return static_cast<double>(micro_batch + i % 5); });
      }
      outputs.push_back(map(in, [&](double x) { return x + stage + 1; }));
      if (!last) send(outputs.back(), stage + 1);
    };
    const auto backward = [&](int micro_batch, const Tensor& in) {
      const Tensor gradient = map(last ? outputs[static_cast<size_t>(micro_batch)] : in,
                                  [](double x) { return 2 * x; });
      if (!first) return send(gradient, stage - 1);
      const std::vector<double> values = Load(gradient);
      const int added = ranks() * (ranks() + 1) / 2;
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], (micro_batch + static_cast<double>(i % 5) + added) * (1 << ranks()));
      }
    };
    int forwards = 0;
    const auto run_forward = [&] {
      if (first) return forward(forwards++, {});
      auto [handle, in] = receive(stage - 1);
      handle.Wait();
      forward(forwards++, in);
    };
    while (forwards < warmup) run_forward();
    for (int micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) {
      if (forwards < kMicroBatches) run_forward();
      if (last) {
        backward(micro_batch, {});
        continue;
      }
      auto [handle, in] = receive(stage + 1);
      handle.Wait();
      backward(micro_batch, in);
    }
    std::reverse(sent.begin(), sent.end());
    for (CommHandle& handle : sent) handle.Wait();
  });
}

// Two ranks that receive first, without waiting, may then both send and wait for that.
TEST_P(Messages, WaitingForSendsFirstIsNoDeadlock) {
  RunRanksCleanly(kind(), ranks(), [this](Communicator& comm, Device& device) {
    const int next = (comm.rank() + 1) % ranks();
    const int previous = (comm.rank() + ranks() - 1) % ranks();
    for (const int64_t count : {3, 300000}) {
      GuardedTensor sent(device, count, DType::kF32);
      GuardedTensor received(device, count, DType::kF32);
      Fill(sent.tensor(), [&](int64_t i) { return Value(comm.rank(), next, 0, i); });
      CommHandle handle = comm.RecvAsync(received.tensor(), previous);
      comm.Send(sent.tensor(), next);
      // The data has been taken: what is written now goes nowhere.
      Fill(sent.tensor(), [](int64_t) { return -1; });
      handle.Wait();
      EXPECT_EQ(Load(received.tensor())[2], Value(previous, comm.rank(), 0, 2));
    }
  });
}

// Collectives of the same ranks may come between a message and the wait for it.
TEST_P(Messages, CollectivesGoOnBesideThem) {
  if (kind() == RankKind::kCudaProcesses) GTEST_SKIP() << "NCCL starts its calls in one order";
  RunRanksCleanly(kind(), ranks(), [this](Communicator& comm, Device& device) {
    GuardedTensor sent(device, 1000, DType::kF32);
    GuardedTensor received(device, 1000, DType::kF32);
    GuardedTensor sum(device, 7, DType::kF32);
    Fill(sent.tensor(), [&](int64_t) { return comm.rank(); });
    Fill(sum.tensor(), [](int64_t) { return 1; });
    CommHandle send = comm.SendAsync(sent.tensor(), (comm.rank() + 1) % ranks());
    comm.AllReduce(sum.tensor());
    CommHandle receive = comm.RecvAsync(received.tensor(), (comm.rank() + ranks() - 1) % ranks());
    comm.Barrier();
    receive.Wait();
    send.Wait();
    EXPECT_EQ(Load(sum.tensor())[6], ranks());
    EXPECT_EQ(Load(received.tensor())[999], (comm.rank() + ranks() - 1) % ranks());
  });
}

std::string CaseName(const testing::TestParamInfo<Messages::ParamType>& info) {
  const auto& [kind, ranks] = info.param;
  return fmt::format("{}ranks_{}", ranks, Name(kind));
}

std::vector<RankKind> Processes() {
  if (WhyNot(RankKind::kCpuProcesses, 1).empty()) return {RankKind::kCpuProcesses};
  return {};
}

std::vector<RankKind> CudaProcesses() {
  if (WhyNot(RankKind::kCpuProcesses, 2).empty()) return {RankKind::kCudaProcesses};
  return {};
}

INSTANTIATE_TEST_SUITE_P(Processes, Messages,
                         testing::Combine(testing::ValuesIn(Processes()), testing::Values(2, 3, 4)),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(CudaProcesses, Messages,
                         testing::Combine(testing::ValuesIn(CudaProcesses()), testing::Values(2)),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Threads, Messages,
                         testing::Combine(testing::Values(RankKind::kCpuThreads,
                                                          RankKind::kEmulatedCudaThreads),
                                          testing::Values(2, 3, 4, 5)),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Cuda, Messages,
                         testing::Combine(testing::Values(RankKind::kCudaThreads),
                                          testing::Values(2, 5)),
                         CaseName);

}  // namespace
}  // namespace trimtab
