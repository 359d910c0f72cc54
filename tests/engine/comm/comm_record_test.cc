// What a communicator reports to the recorder of a device, on cpu and on meta.
#include <gtest/gtest.h>

#include <functional>

#include "tests/engine/comm/rank_threads.h"

namespace trimtab {
namespace {

class Listener final : public Recorder {
 public:
  void BeginOp(const OpRecord&) override { ++open_; }
  void BeginComm(const CommRecord& message) override {
    messages.push_back(message);
    ++open_;
  }
  void BeginWait(const CommRecord& message) override {
    waits.push_back(message);
    ++open_;
  }
  void End() override { --open_; }
  int open() const { return open_; }

  std::vector<CommRecord> messages;
  std::vector<CommRecord> waits;

 private:
  int open_ = 0;
};

/// One of each, over 2 ranks: 4 values per rank where there are parts.
void CallEverything(Communicator& comm, Device& device, DType dtype) {
  const auto make = [&device, dtype](int64_t count) {
    return Tensor::Empty(device, {count}, dtype, MemoryTag::kCommunication);
  };
  Tensor part = make(4);
  Tensor whole = make(8);
  Tensor other = make(8);
  Tensor received_part = make(4);
  comm.AllReduce(whole);
  comm.ReduceScatter(whole, part);
  comm.AllGather(part, whole);
  comm.Broadcast(part, 1);
  // 2 stay on each rank, 3 go to the other.
  const std::vector<BufferPart> parts = comm.rank() == 0 ? std::vector<BufferPart>{{0, 2}, {2, 3}}
                                                         : std::vector<BufferPart>{{0, 3}, {3, 2}};
  comm.AllToAll(whole, parts, other, parts);
  comm.Barrier();
  if (comm.rank() == 0) {
    comm.Send(part, 1);
    comm.Recv(whole, 1);
  } else {
    comm.Recv(part, 0);
    comm.Send(whole, 0);
  }
  CommHandle reduced = comm.AllReduceAsync(whole);
  CommHandle sent = comm.SendAsync(part, 1 - comm.rank());
  CommHandle received = comm.RecvAsync(received_part, 1 - comm.rank());
  received.Wait();
  reduced.Wait();
  CommHandle scattered = comm.ReduceScatterAsync(whole, received_part);
  CommHandle gathered = comm.AllGatherAsync(part, other);
  gathered.Wait();
  scattered.Wait();
  sent.Wait();
}

// Bytes of the full buffer, as record.h defines them.
CommRecord Record(DType dtype, CollectiveKind kind, int64_t values, int peer = -1, int64_t id = 0) {
  return {kind, GroupKind::kWorld, 2, values * SizeOf(dtype), peer, id};
}

std::vector<CommRecord> ExpectedOfRank0(DType dtype) {
  return {Record(dtype, CollectiveKind::kAllReduce, 8),
          Record(dtype, CollectiveKind::kReduceScatter, 8),
          Record(dtype, CollectiveKind::kAllGather, 8),
          Record(dtype, CollectiveKind::kBroadcast, 4, 1),
          Record(dtype, CollectiveKind::kAllToAll, 5),
          Record(dtype, CollectiveKind::kSend, 4, 1),
          Record(dtype, CollectiveKind::kRecv, 8, 1),
          Record(dtype, CollectiveKind::kAllReduce, 8, -1, 1),
          Record(dtype, CollectiveKind::kSend, 4, 1, 2),
          Record(dtype, CollectiveKind::kRecv, 4, 1, 3),
          Record(dtype, CollectiveKind::kReduceScatter, 8, -1, 4),
          Record(dtype, CollectiveKind::kAllGather, 8, -1, 5)};
}

/// In the order in which they are waited for.
std::vector<CommRecord> ExpectedWaitsOfRank0(DType dtype) {
  const std::vector<CommRecord> messages = ExpectedOfRank0(dtype);
  return {messages[9], messages[7], messages[11], messages[10], messages[8]};
}

TEST(CommRecord, CpuAndMetaReportTheSame) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    RunRanksCleanly(2, [dtype](Communicator& comm, Device& device) {
      Listener listener;
      device.set_recorder(&listener);
      CallEverything(comm, device, dtype);
      EXPECT_EQ(listener.open(), 0);
      if (comm.rank() == 0) {
        EXPECT_EQ(listener.messages, ExpectedOfRank0(dtype));
        EXPECT_EQ(listener.waits, ExpectedWaitsOfRank0(dtype));
      }
    });

    const auto meta = MakeMetaDevice(1);
    Listener listener;
    meta->set_recorder(&listener);
    CallEverything(*MakeMetaCommunicator(GroupKind::kWorld, 0, 2), *meta, dtype);
    EXPECT_EQ(listener.open(), 0);
    EXPECT_EQ(listener.messages, ExpectedOfRank0(dtype));
    EXPECT_EQ(listener.waits, ExpectedWaitsOfRank0(dtype));
  }
}

TEST(CommRecord, OneRankReportsNothingAndCopies) {
  const auto device = MakeCpuDevice(1);
  Listener listener;
  device->set_recorder(&listener);
  const auto group = MakeInprocGroup(GroupKind::kData, 1);
  using Move = std::function<void(const Tensor& in, Tensor& out)>;
  Communicator& comm = *group[0];
  const std::vector<BufferPart> all = {{0, 2}};
  for (const Move& move :
       {Move([&](const Tensor&in, Tensor&out) { comm.ReduceScatter(in, out); }),
        Move([&](const Tensor&in, Tensor&out) { comm.AllGather(in, out); }),
        Move([&](const Tensor&in, Tensor&out) { comm.AllToAll(in, all, out, all); })}) {
    Tensor in = Tensor::Empty(*device, {2}, DType::kF32, MemoryTag::kCommunication);
    Tensor out = Tensor::Empty(*device, {2}, DType::kF32, MemoryTag::kCommunication);
    Set(in, 0, 5);
    Set(in, 1, 7);
    Set(out, 1, 0);
    move(in, out);
    EXPECT_EQ(Get(out, 0), 5);
    EXPECT_EQ(Get(out, 1), 7);
    move(in, in);
  }
  Tensor buffer = Tensor::Empty(*device, {1}, DType::kF32, MemoryTag::kCommunication);
  Set(buffer, 0, 3);
  group[0]->AllReduce(buffer);
  group[0]->Broadcast(buffer, 0);
  group[0]->Barrier();
  group[0]->AllReduceAsync(buffer).Wait();
  EXPECT_EQ(Get(buffer, 0), 3);
  EXPECT_TRUE(listener.messages.empty());
  EXPECT_TRUE(listener.waits.empty());
}

TEST(CommRecord, MessageEndsAlsoWhenTheCallThrows) {
  const auto device = MakeCpuDevice(1);
  Listener listener;
  device->set_recorder(&listener);
  const auto group = MakeInprocGroup(GroupKind::kData, 2);
  group[0]->Abort("gone");
  Tensor buffer = Tensor::Empty(*device, {1}, DType::kF32, MemoryTag::kCommunication);
  EXPECT_THROW(group[0]->AllReduce(buffer), CommError);
  EXPECT_EQ(listener.messages.size(), 1u);
  EXPECT_EQ(listener.open(), 0);
}

TEST(CommRecord, WaitEndsAlsoWhenItThrows) {
  const auto device = MakeCpuDevice(1);
  Listener listener;
  device->set_recorder(&listener);
  const auto group = MakeInprocGroup(GroupKind::kData, 2);
  Tensor buffer = Tensor::Empty(*device, {1}, DType::kF32, MemoryTag::kCommunication);
  CommHandle received = group[0]->RecvAsync(buffer, 1);
  group[1]->Abort("gone");
  EXPECT_THROW(received.Wait(), CommError);
  EXPECT_EQ(listener.waits.size(), 1u);
  EXPECT_EQ(listener.open(), 0);
  received.Wait();
  EXPECT_EQ(listener.waits.size(), 1u) << "there is nothing left to wait for";
}

TEST(MetaCommunicator, HasNoRealMemoryToLeaveUnchanged) {
  const auto device = MakeCpuDevice(1);
  Tensor buffer = Tensor::Empty(*device, {1}, DType::kF32, MemoryTag::kCommunication);
  const auto comm = MakeMetaCommunicator(GroupKind::kData, 0, 2);
  EXPECT_DEATH(comm->AllReduce(buffer), "real memory");
}

TEST(MetaCommunicator, ThrowsAfterAbort) {
  const auto comm = MakeMetaCommunicator(GroupKind::kData, 0, 2);
  comm->Abort("gone");
  EXPECT_THROW(comm->Barrier(), CommError);
}

}  // namespace
}  // namespace trimtab
