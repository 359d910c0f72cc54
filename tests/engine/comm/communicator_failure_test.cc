// What goes wrong on one rank reaches all of them, and nothing hangs.
#include <gtest/gtest.h>

#include <chrono>

#include "engine/comm/cuda/emulated_comm.h"
#include "tests/engine/comm/rank_threads.h"

namespace trimtab {
namespace {

Tensor Floats(Device& device, int64_t count) {
  return Tensor::Empty(device, {count}, DType::kF32, MemoryTag::kCommunication);
}

struct Mismatch {
  const char* name;
  int ranks;
  std::function<void(Communicator&, Device&)> body;
  int causes;  // ranks that noticed themselves, with an Error that is no CommError
  std::vector<std::string> words;  // all of them are in the message
};

void PrintTo(const Mismatch& mismatch, std::ostream* out) { *out << mismatch.name; }

class Mismatches : public testing::TestWithParam<Mismatch> {};

TEST_P(Mismatches, EveryRankThrowsAndBothCallsAreNamed) {
  const std::vector<RankEnd> ends = RunRanks(GetParam().ranks, GetParam().body);
  int causes = 0;
  for (const RankEnd& end : ends) {
    EXPECT_TRUE(end.threw);
    causes += !end.comm_error;
    for (const std::string& word : GetParam().words) {
      EXPECT_NE(end.what.find(word), std::string::npos) << end.what;
    }
  }
  EXPECT_EQ(causes, GetParam().causes);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, Mismatches,
    testing::Values(
        Mismatch{"Kinds",
                 3,
                 [](Communicator& comm, Device& device) {
                   Tensor tensor = Floats(device, 8);
                   if (comm.rank() == 1) return comm.Broadcast(tensor, 2);
                   comm.AllReduce(tensor);
                 },
                 1,
                 {"rank 1 calls broadcast of 8 fp32 from rank 2", "calls all_reduce(sum) of 8"}},
        Mismatch{"Parts",
                 2,
                 [](Communicator& comm, Device& device) {
                   const Tensor in = Floats(device, 8);
                   Tensor out = Floats(device, 8);
                   // 3 stay on the first rank, which sends 5; the other one expects 4.
                   const bool first = comm.rank() == 0;
                   const std::vector<BufferPart> send = {{0, 3}, {3, first ? 5 : 4}};
                   const std::vector<BufferPart> receive = {{0, first ? 3 : 4}, {4, first ? 3 : 4}};
                   comm.AllToAll(in, send, out, receive);
                 },
                 2,
                 {"all_to_all in the world group: rank 0 sends 5 elements to rank 1, which expects "
                  "4"}},
        Mismatch{"Sizes",
                 2,
                 [](Communicator& comm, Device& device) {
                   Tensor tensor = Floats(device, comm.rank() == 0 ? 8 : 9);
                   comm.AllReduce(tensor);
                 },
                 1,
                 {"of 8 fp32", "of 9 fp32"}},
        Mismatch{"Dtypes",
                 2,
                 [](Communicator& comm, Device& device) {
                   Tensor tensor =
                       Tensor::Empty(device, {8}, comm.rank() == 0 ? DType::kF32 : DType::kI32,
                                     MemoryTag::kCommunication);
                   comm.AllReduce(tensor);
                 },
                 1,
                 {"of 8 fp32", "of 8 int32"}},
        Mismatch{"ReduceOps",
                 2,
                 [](Communicator& comm, Device& device) {
                   Tensor tensor = Floats(device, 8);
                   comm.AllReduce(tensor, comm.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax);
                 },
                 1,
                 {"all_reduce(sum)", "all_reduce(max)"}},
        Mismatch{"Roots",
                 2,
                 [](Communicator& comm, Device& device) {
                   Tensor tensor = Floats(device, 8);
                   comm.Broadcast(tensor, comm.rank());
                 },
                 1,
                 {"from rank 0", "from rank 1"}},
        Mismatch{"MessageSizes",
                 2,
                 [](Communicator& comm, Device& device) {
                   Tensor tensor = Floats(device, comm.rank() == 0 ? 8 : 9);
                   if (comm.rank() == 0) return comm.Send(tensor, 1);
                   comm.Recv(tensor, 0);
                 },
                 1,
                 {"send of 8 fp32 to rank 1", "recv of 9 fp32 from rank 0"}},
        Mismatch{"MessageAgainstCollective",
                 2,
                 [](Communicator& comm, Device& device) {
                   Tensor tensor = Floats(device, 8);
                   if (comm.rank() == 0) return comm.Send(tensor, 1);
                   comm.AllReduce(tensor);
                 },
                 0,
                 {"send of 8 fp32 to rank 1", "all_reduce(sum)"}},
        Mismatch{"TwoSends",
                 2,
                 [](Communicator& comm, Device& device) {
                   comm.Send(Floats(device, 8), 1 - comm.rank());
                 },
                 0,
                 {"deadlock", "rank 0 calls send of 8 fp32 to rank 1 in the world group",
                  "rank 1 calls send of 8 fp32 to rank 0"}},
        Mismatch{"AsynchronousMessageSizes",
                 2,
                 [](Communicator& comm, Device& device) {
                   Tensor first = Floats(device, 4);
                   Tensor second = Floats(device, comm.rank() == 0 ? 8 : 9);
                   const auto submit = [&](Tensor& tensor) {
                     return comm.rank() == 0 ? comm.SendAsync(tensor, 1)
                                             : comm.RecvAsync(tensor, 0);
                   };
                   CommHandle handles[] = {submit(first), submit(second)};
                   handles[0].Wait();
                   handles[1].Wait();
                 },
                 1,
                 {"rank 0 calls send of 8 fp32 to rank 1", "rank 1 calls recv of 9 fp32 from"}},
        Mismatch{
            "EverybodyReceives",
            3,
            [](Communicator& comm, Device& device) {
              Tensor from_next = Floats(device, 8);
              Tensor from_previous = Floats(device, 9);
              CommHandle next = comm.RecvAsync(from_next, (comm.rank() + 1) % 3);
              CommHandle previous = comm.RecvAsync(from_previous, (comm.rank() + 2) % 3);
              (comm.rank() == 1 ? previous : next).Wait();
            },
            0,
            {"deadlock", "rank 0 calls recv of 8 fp32 from rank 1",
             "rank 1 calls recv of 9 fp32 from rank 0 in the world group", "rank 2 calls recv"}},
        Mismatch{"OneSendTooFew",
                 3,
                 [](Communicator& comm, Device& device) {
                   std::vector<Tensor> tensors(3);
                   std::vector<CommHandle> handles;
                   const int messages = comm.rank() == 0 ? 2 : 3;
                   for (int i = 0; i < messages; ++i) {
                     Tensor& tensor = tensors[static_cast<size_t>(i)] = Floats(device, 8);
                     if (comm.rank() > 0) {
                       handles.push_back(comm.RecvAsync(tensor, comm.rank() - 1));
                       handles.back().Wait();
                     }
                     if (comm.rank() < 2)
                       handles.push_back(comm.SendAsync(tensor, comm.rank() + 1));
                   }
                   for (CommHandle& handle : handles) handle.Wait();
                   comm.Barrier();
                 },
                 0,
                 {"deadlock", "rank 0 calls barrier", "rank 1 calls recv of 8 fp32 from rank 0",
                  "rank 2 calls recv of 8 fp32 from rank 1"}},
        Mismatch{"RingOfSends",
                 3,
                 [](Communicator& comm, Device& device) {
                   comm.Send(Floats(device, 8), (comm.rank() + 1) % 3);
                 },
                 0,
                 {"deadlock", "rank 0 calls send of 8 fp32 to rank 1", "rank 2 calls send"}}),
    [](const auto& param) { return param.param.name; });

TEST(Failure, RankThatLeavesFailsThoseWhoWaitForIt) {
  for (const bool collective : {true, false}) {
    const auto ends = RunRanks(2, [collective](Communicator& comm, Device& device) {
      if (comm.rank() == 1) return;
      Tensor tensor = Floats(device, 4);
      if (collective) return comm.AllReduce(tensor);
      comm.Recv(tensor, 1);
    });
    EXPECT_TRUE(ends[0].threw);
    EXPECT_NE(ends[0].what.find("deadlock, every rank waits for another: rank 0 calls"),
              std::string::npos)
        << ends[0].what;
    EXPECT_TRUE(ends[0].what.ends_with("rank 1 has left")) << ends[0].what;
    EXPECT_FALSE(ends[1].threw);
  }
}

// Rank 2 aborts while the others wait, each in its own way.
TEST(Failure, AbortWakesEveryWaitingRank) {
  const auto ends = RunRanks(4, [](Communicator& comm, Device& device) {
    Tensor tensor = Floats(device, 4);
    switch (comm.rank()) {
      case 0:
        return comm.Recv(tensor, 2);
      case 1:
        return comm.Send(tensor, 2);
      case 2:
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return comm.Abort("no more paper");
      default:
        return comm.Recv(tensor, 2);
    }
  });
  for (int rank : {0, 1, 3}) {
    EXPECT_TRUE(ends[static_cast<size_t>(rank)].comm_error) << rank;
    EXPECT_EQ(ends[static_cast<size_t>(rank)].what, "no more paper");
  }
}

// Rank 2 throws in the middle of a pipeline, with messages of its own under way; its neighbours
// wait for theirs. Nobody touches a buffer that is gone (address sanitizer would see that).
TEST(Failure, RankThatThrowsLeavesNobodyWaiting) {
  for (int fails_at = 0; fails_at < 30; ++fails_at) {
    const auto ends = RunRanks(4, [fails_at](Communicator& comm, Device& device) {
      int steps = 0;
      const auto step = [&] {
        if (comm.rank() == 2 && steps++ == fails_at) throw StorageError("disk full");
      };
      try {
        for (int round = 0; round < 6; ++round) {
          std::vector<CommHandle> handles;
          for (const int peer : {comm.rank() - 1, comm.rank() + 1}) {
            if (peer < 0 || peer > 3) continue;
            step();
            Tensor received = Floats(device, 20000);
            handles.push_back(comm.RecvAsync(received, peer));
            step();
            handles.push_back(comm.SendAsync(Floats(device, 20000), peer));
          }
          for (CommHandle& handle : handles) {
            step();
            handle.Wait();
          }
        }
      } catch (const std::exception& error) {
        comm.Abort(error.what());
        throw;
      }
    });
    for (const RankEnd& end : ends) EXPECT_EQ(end.what, "disk full");
    EXPECT_FALSE(ends[2].comm_error);
  }
}

TEST(Failure, AbortWakesABarrierAndFailsLaterCalls) {
  const auto ends = RunRanks(3, [](Communicator& comm, Device& device) {
    if (comm.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      comm.Abort("first reason");
      comm.Abort("second reason");
    }
    EXPECT_THROW(comm.Barrier(), CommError);
    Tensor tensor = Floats(device, 4);
    EXPECT_THROW(comm.AllReduce(tensor), CommError);
    EXPECT_THROW(comm.Send(tensor, (comm.rank() + 1) % 3), CommError);
    comm.Barrier();
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.what, "first reason");
}

// Aborting at every moment of a running all-reduce: a rank either completes it or throws, and
// never leaves while a peer still uses its buffer (address sanitizer would see that).
TEST(Failure, AbortDuringWorkIsSafe) {
  for (int delay_us = 0; delay_us < 400; delay_us += 10) {
    const auto ends = RunRanks(3, [delay_us](Communicator& comm, Device& device) {
      if (comm.rank() == 2) {
        std::thread([&comm, delay_us] {
          std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
          comm.Abort("stop");
        }).join();
      }
      for (int round = 0; round < 20; ++round) {
        Tensor tensor = Floats(device, 10000);
        comm.AllReduce(tensor);
      }
    });
    for (const RankEnd& end : ends) EXPECT_EQ(end.what, "stop");
  }
}

TEST(Failure, HostAndDeviceMemoryDoNotMix) {
  const auto ends =
      RunRanks(RankKind::kEmulatedCudaThreads, 2, [](Communicator& comm, Device& device) {
        const auto host = MakeCpuDevice(1);
        Tensor tensor = Floats(comm.rank() == 0 ? *host : device, 8);
        comm.AllReduce(tensor);
      });
  for (const RankEnd& end : ends) {
    EXPECT_NE(end.what.find("rank 1 calls all_reduce(sum) of 8 fp32 on cuda"), std::string::npos)
        << end.what;
  }
}

const Device* device_that_fails = nullptr;

// A GPU that fails in the middle of a collective: the peers are not left waiting for its part.
TEST(Failure, RankThatFailsAtItsPartLetsTheOthersFinish) {
  static CudaComm broken = EmulatedCudaComm();
  broken.reduce = [](Device& device, DType dtype, ReduceOp op, std::span<const void* const> sources,
                     std::span<void* const> targets, int64_t begin, int64_t end, int64_t shift) {
    if (&device == device_that_fails) throw EnvironmentError("the GPU has fallen off the bus");
    EmulatedCudaComm().reduce(device, dtype, op, sources, targets, begin, end, shift);
  };
  const auto ends =
      RunRanks(RankKind::kEmulatedCudaThreads, 3, [](Communicator& comm, Device& device) {
        device.set_cuda_comm(&broken);
        if (comm.rank() == 1) device_that_fails = &device;
        comm.Barrier();
        Tensor tensor = Floats(device, 1000);
        comm.AllReduce(tensor);
        comm.Barrier();  // rank 1 has left
      });
  EXPECT_EQ(ends[1].what, "the GPU has fallen off the bus");
  EXPECT_FALSE(ends[1].comm_error);
  for (const int rank : {0, 2}) {
    const RankEnd& end = ends[static_cast<size_t>(rank)];
    EXPECT_TRUE(end.comm_error);
    EXPECT_NE(end.what.find("rank 1 has left"), std::string::npos) << end.what;
  }
}

TEST(Failure, RanksOnGpusCannotBeCapturedTogether) {
  RunRanksCleanly(RankKind::kEmulatedCudaThreads, 2,
                  [](Communicator& comm, Device&) { EXPECT_FALSE(comm.CanCapture()); });
  EXPECT_TRUE(MakeInprocGroup(GroupKind::kData, 1)[0]->CanCapture());
}

// A GPU that fails while it moves a message: neither end takes the data for granted.
TEST(Failure, MessageThatCannotBeMovedFailsBothEnds) {
  static CudaComm broken = EmulatedCudaComm();
  broken.copy = [](Device&, const void*, void*, int64_t) {
    throw EnvironmentError("the GPU has fallen off the bus");
  };
  const auto ends =
      RunRanks(RankKind::kEmulatedCudaThreads, 2, [](Communicator& comm, Device& device) {
        device.set_cuda_comm(&broken);
        Tensor tensor = Floats(device, 1000);
        if (comm.rank() == 0) return comm.Send(tensor, 1);
        comm.Recv(tensor, 0);
      });
  for (const RankEnd& end : ends) EXPECT_EQ(end.what, "the GPU has fallen off the bus");
  EXPECT_NE(ends[0].comm_error, ends[1].comm_error);
}

TEST(FailureDeathTest, HandlesAreWaitedFor) {
  const auto device = MakeCpuDevice(1);
  const auto group = MakeInprocGroup(GroupKind::kPipeline, 2);
  Tensor tensor = Floats(*device, 3);
  const auto drop = [&] { static_cast<void>(group[0]->SendAsync(tensor, 1)); };
  EXPECT_DEATH(drop(), "nobody waited for send in the pp group");
  const auto overwrite = [&] {
    CommHandle handle = group[0]->SendAsync(tensor, 1);
    handle = CommHandle();
  };
  EXPECT_DEATH(overwrite(), "nobody waited for send");
  // Of a group that has failed, nobody needs the message.
  CommHandle handle = group[0]->SendAsync(tensor, 1);
  group[0]->Abort("gone");
}

TEST(FailureDeathTest, ShapesAndPeersAreChecked) {
  const auto device = MakeCpuDevice(1);
  const auto group = MakeInprocGroup(GroupKind::kTensor, 2);
  Tensor three = Floats(*device, 3);
  Tensor four = Floats(*device, 4);
  Tensor undefined;
  EXPECT_DEATH(group[0]->AllGather(three, four), "all-gather over 2 ranks: \\[3\\] into \\[4\\]");
  EXPECT_DEATH(group[0]->ReduceScatter(four, three), "reduce-scatter over 2 ranks");
  const std::vector<BufferPart> halves = {{0, 2}, {2, 2}};
  EXPECT_DEATH(group[0]->AllToAll(four, {halves.data(), 1}, four, halves), "2 ranks: 1 parts");
  EXPECT_DEATH(group[0]->AllToAll(three, halves, three, halves), "2 elements from 2 on, of");
  EXPECT_DEATH(group[0]->AllToAll(four, halves, four, halves), "overlap");
  EXPECT_DEATH(group[0]->AllReduce(undefined), "undefined");
  EXPECT_DEATH(group[0]->Broadcast(three, 2), "root 2 is not in a group of 2");
  EXPECT_DEATH(group[0]->Send(three, 0), "talks to itself");
  EXPECT_DEATH(group[0]->Recv(three, 5), "rank 5 is not in a group of 2");
}

}  // namespace
}  // namespace trimtab
