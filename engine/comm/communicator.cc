// The checks and reports that every communicator shares; the work itself is in Do*.
#include "engine/comm/communicator.h"

#include <algorithm>
#include <cstring>

#include "engine/comm/cuda_comm.h"

namespace trimtab {
namespace {

/// Reports one message for as long as it lives, also when the work throws.
class ReportMessage {
 public:
  ReportMessage(const Tensor& tensor, const CommRecord& message)
      : recorder_(tensor.device().recorder()) {
    if (recorder_ != nullptr) recorder_->BeginComm(message);
  }
  ~ReportMessage() {
    if (recorder_ != nullptr) recorder_->End();
  }
  ReportMessage(const ReportMessage&) = delete;
  ReportMessage& operator=(const ReportMessage&) = delete;

 private:
  Recorder* recorder_;
};

void CheckPair(const char* what, const Tensor& in, const Tensor& out) {
  TRIMTAB_ASSERT(in.defined() && out.defined(), "{} of an undefined tensor", what);
  TRIMTAB_ASSERT(in.dtype() == out.dtype(), "{} from {} into {}", what, Name(in.dtype()),
                 Name(out.dtype()));
  TRIMTAB_ASSERT(&in.device() == &out.device(), "{} between two devices", what);
}

/// What a collective of one rank comes down to.
void CopyUnlessSame(const Tensor& in, Tensor& out) {
  const DeviceKind kind = out.device().kind();
  if (kind == DeviceKind::kMeta || in.raw() == out.raw() || in.bytes() == 0) return;
  if (kind == DeviceKind::kCuda) {
    return CudaCommOf(out.device()).copy(out.device(), in.raw(), out.raw(), in.bytes());
  }
  std::memcpy(out.raw(), in.raw(), static_cast<size_t>(in.bytes()));
}

}  // namespace

template <typename Work>
void Communicator::Run(const Tensor& tensor, const CommRecord& message, const Work& work) {
  const ReportMessage report(tensor, message);
  try {
    work();
  } catch (...) {
    failed_->store(true);
    throw;
  }
}

template <typename Work>
CommHandle Communicator::Submit(const Tensor& in, const Tensor& out, CommRecord message,
                                const Work& work) {
  message.id = in.device().NextMessageId();
  Pending pending;
  Run(in, message, [&] { pending = work(); });
  return CommHandle(std::make_unique<CommHandle::State>(
      CommHandle::State{message, in, out, failed_, std::move(pending)}));
}

CommRecord Communicator::AllReduceRecord(const Tensor& buffer) const {
  TRIMTAB_ASSERT(buffer.defined(), "all-reduce of an undefined tensor");
  return {CollectiveKind::kAllReduce, group_, size_, buffer.bytes()};
}

CommRecord Communicator::ReduceScatterRecord(const Tensor& in, const Tensor& out) const {
  CheckPair("reduce-scatter", in, out);
  TRIMTAB_ASSERT(in.numel() == out.numel() * size_, "reduce-scatter over {} ranks: {} into {}",
                 size_, in.shape().ToString(), out.shape().ToString());
  return {CollectiveKind::kReduceScatter, group_, size_, in.bytes()};
}

CommRecord Communicator::AllGatherRecord(const Tensor& in, const Tensor& out) const {
  CheckPair("all-gather", in, out);
  TRIMTAB_ASSERT(out.numel() == in.numel() * size_, "all-gather over {} ranks: {} into {}", size_,
                 in.shape().ToString(), out.shape().ToString());
  return {CollectiveKind::kAllGather, group_, size_, out.bytes()};
}

CommRecord Communicator::MessageRecord(CollectiveKind kind, const Tensor& tensor, int peer) const {
  TRIMTAB_ASSERT(tensor.defined(), "{} of an undefined tensor", Name(kind));
  TRIMTAB_ASSERT(peer >= 0 && peer < size_, "{}: rank {} is not in a group of {}", Name(kind), peer,
                 size_);
  TRIMTAB_ASSERT(peer != rank_, "{}: rank {} talks to itself", Name(kind), rank_);
  return {kind, group_, size_, tensor.bytes(), peer};
}

void Communicator::AllReduce(Tensor& buffer, ReduceOp op) {
  const CommRecord message = AllReduceRecord(buffer);
  if (size_ == 1) return;
  Run(buffer, message, [&] { DoAllReduce(buffer, op); });
}

CommHandle Communicator::AllReduceAsync(Tensor& buffer, ReduceOp op) {
  const CommRecord message = AllReduceRecord(buffer);
  if (size_ == 1) return {};
  return Submit(buffer, buffer, message, [&] { return DoAllReduceAsync(buffer, op); });
}

void Communicator::ReduceScatter(const Tensor& in, Tensor& out) {
  const CommRecord message = ReduceScatterRecord(in, out);
  if (size_ == 1) return CopyUnlessSame(in, out);
  Run(in, message, [&] { DoReduceScatter(in, out); });
}

CommHandle Communicator::ReduceScatterAsync(const Tensor& in, Tensor& out) {
  const CommRecord message = ReduceScatterRecord(in, out);
  if (size_ == 1) {
    CopyUnlessSame(in, out);
    return {};
  }
  return Submit(in, out, message, [&] { return DoReduceScatterAsync(in, out); });
}

void Communicator::AllGather(const Tensor& in, Tensor& out) {
  const CommRecord message = AllGatherRecord(in, out);
  if (size_ == 1) return CopyUnlessSame(in, out);
  Run(in, message, [&] { DoAllGather(in, out); });
}

CommHandle Communicator::AllGatherAsync(const Tensor& in, Tensor& out) {
  const CommRecord message = AllGatherRecord(in, out);
  if (size_ == 1) {
    CopyUnlessSame(in, out);
    return {};
  }
  return Submit(in, out, message, [&] { return DoAllGatherAsync(in, out); });
}

void Communicator::Broadcast(Tensor& buffer, int root) {
  TRIMTAB_ASSERT(buffer.defined(), "broadcast of an undefined tensor");
  TRIMTAB_ASSERT(root >= 0 && root < size_, "broadcast: root {} is not in a group of {}", root,
                 size_);
  if (size_ == 1) return;
  Run(buffer, {CollectiveKind::kBroadcast, group_, size_, buffer.bytes(), root},
      [&] { DoBroadcast(buffer, root); });
}

void Communicator::AllToAll(const Tensor& in, std::span<const BufferPart> send, Tensor& out,
                            std::span<const BufferPart> receive) {
  CheckPair("all-to-all", in, out);
  const int64_t bytes = std::max(PartBytes(in, send), PartBytes(out, receive));
  if (size_ == 1) {
    TRIMTAB_ASSERT(send[0].count == receive[0].count, "all-to-all of one rank: {} into {}",
                   send[0].count, receive[0].count);
    Tensor target = out.Slice(receive[0].begin, {receive[0].count});
    return CopyUnlessSame(in.Slice(send[0].begin, {send[0].count}), target);
  }
  const auto* from = static_cast<const char*>(in.raw());
  const auto* to = static_cast<const char*>(out.raw());
  TRIMTAB_ASSERT(from == nullptr || from + in.bytes() <= to || to + out.bytes() <= from,
                 "all-to-all: input and output overlap");
  Run(in, {CollectiveKind::kAllToAll, group_, size_, bytes},
      [&] { DoAllToAll(in, send, out, receive); });
}

int64_t Communicator::PartBytes(const Tensor& tensor, std::span<const BufferPart> parts) const {
  TRIMTAB_ASSERT(static_cast<int>(parts.size()) == size_, "all-to-all over {} ranks: {} parts",
                 size_, parts.size());
  int64_t sum = 0;
  for (const BufferPart& part : parts) {
    TRIMTAB_ASSERT(part.begin >= 0 && part.count >= 0 && part.begin + part.count <= tensor.numel(),
                   "all-to-all: {} elements from {} on, of {}", part.count, part.begin,
                   tensor.shape().ToString());
    sum += part.count;
  }
  return sum * SizeOf(tensor.dtype());
}

CommHandle Communicator::SendAsync(const Tensor& tensor, int destination) {
  return Submit(tensor, {}, MessageRecord(CollectiveKind::kSend, tensor, destination),
                [&] { return DoSendAsync(tensor, destination); });
}

CommHandle Communicator::RecvAsync(Tensor& tensor, int source) {
  return Submit(tensor, {}, MessageRecord(CollectiveKind::kRecv, tensor, source),
                [&] { return DoRecvAsync(tensor, source); });
}

void Communicator::Send(const Tensor& tensor, int destination) {
  Run(tensor, MessageRecord(CollectiveKind::kSend, tensor, destination),
      [&] { DoSend(tensor, destination); });
}

void Communicator::Recv(Tensor& tensor, int source) {
  Run(tensor, MessageRecord(CollectiveKind::kRecv, tensor, source),
      [&] { DoRecv(tensor, source); });
}

void Communicator::Barrier() {
  if (size_ > 1) DoBarrier();
}

Communicator::Pending Communicator::DoAllReduceAsync(Tensor& buffer, ReduceOp op) {
  DoAllReduce(buffer, op);
  return nullptr;
}

Communicator::Pending Communicator::DoReduceScatterAsync(const Tensor& in, Tensor& out) {
  DoReduceScatter(in, out);
  return nullptr;
}

Communicator::Pending Communicator::DoAllGatherAsync(const Tensor& in, Tensor& out) {
  DoAllGather(in, out);
  return nullptr;
}

void Communicator::DoSend(const Tensor& tensor, int destination) {
  if (const Pending sent = DoSendAsync(tensor, destination)) sent->Wait();
}

void Communicator::DoRecv(Tensor& tensor, int source) {
  if (const Pending received = DoRecvAsync(tensor, source)) received->Wait();
}

void BroadcastHostBytes(Communicator& group, std::span<std::byte> bytes, int root) {
  const std::unique_ptr<Device> host = MakeCpuDevice(1);
  Tensor tensor = Tensor::Empty(*host, {std::ssize(bytes)}, DType::kI8, MemoryTag::kCommunication);
  std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  group.Broadcast(tensor, root);
  std::memcpy(bytes.data(), tensor.raw(), bytes.size());
}

void SendHostBytes(Communicator& group, std::span<const std::byte> bytes, int destination) {
  if (bytes.empty()) return;
  const std::unique_ptr<Device> host = MakeCpuDevice(1);
  const Tensor tensor =
      Tensor::Empty(*host, {std::ssize(bytes)}, DType::kI8, MemoryTag::kCommunication);
  std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  group.Send(tensor, destination);
}

void RecvHostBytes(Communicator& group, std::span<std::byte> bytes, int source) {
  if (bytes.empty()) return;
  const std::unique_ptr<Device> host = MakeCpuDevice(1);
  Tensor tensor = Tensor::Empty(*host, {std::ssize(bytes)}, DType::kI8, MemoryTag::kCommunication);
  group.Recv(tensor, source);
  std::memcpy(bytes.data(), tensor.raw(), bytes.size());
}

const CudaComm& CudaCommOf(const Device& device) {
  if (device.cuda_comm() == nullptr) {
    throw EnvironmentError("this device has no messages between ranks");
  }
  return *device.cuda_comm();
}

}  // namespace trimtab
