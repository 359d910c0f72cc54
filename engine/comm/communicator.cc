// The checks and reports that every communicator shares; the work itself is in Do*.
#include "engine/comm/communicator.h"

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

void CheckPeer(const char* what, int rank, int peer, int size) {
  TRIMTAB_ASSERT(peer >= 0 && peer < size, "{}: rank {} is not in a group of {}", what, peer, size);
  TRIMTAB_ASSERT(peer != rank, "{}: rank {} talks to itself", what, rank);
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

void Communicator::AllReduceWith(AllReduceWork work, Tensor& buffer, ReduceOp op) {
  TRIMTAB_ASSERT(buffer.defined(), "all-reduce of an undefined tensor");
  if (size_ == 1) return;
  const ReportMessage report(buffer, {CollectiveKind::kAllReduce, group_, size_, buffer.bytes()});
  (this->*work)(buffer, op);
}

void Communicator::ReduceScatterWith(PairWork work, const Tensor& in, Tensor& out) {
  CheckPair("reduce-scatter", in, out);
  TRIMTAB_ASSERT(in.numel() == out.numel() * size_, "reduce-scatter over {} ranks: {} into {}",
                 size_, in.shape().ToString(), out.shape().ToString());
  if (size_ == 1) return CopyUnlessSame(in, out);
  const ReportMessage report(in, {CollectiveKind::kReduceScatter, group_, size_, in.bytes()});
  (this->*work)(in, out);
}

void Communicator::AllGatherWith(PairWork work, const Tensor& in, Tensor& out) {
  CheckPair("all-gather", in, out);
  TRIMTAB_ASSERT(out.numel() == in.numel() * size_, "all-gather over {} ranks: {} into {}", size_,
                 in.shape().ToString(), out.shape().ToString());
  if (size_ == 1) return CopyUnlessSame(in, out);
  const ReportMessage report(out, {CollectiveKind::kAllGather, group_, size_, out.bytes()});
  (this->*work)(in, out);
}

void Communicator::AllReduce(Tensor& buffer, ReduceOp op) {
  AllReduceWith(&Communicator::DoAllReduce, buffer, op);
}
void Communicator::AllReduceAsync(Tensor& buffer, ReduceOp op) {
  AllReduceWith(&Communicator::DoAllReduceAsync, buffer, op);
}
void Communicator::ReduceScatter(const Tensor& in, Tensor& out) {
  ReduceScatterWith(&Communicator::DoReduceScatter, in, out);
}
void Communicator::ReduceScatterAsync(const Tensor& in, Tensor& out) {
  ReduceScatterWith(&Communicator::DoReduceScatterAsync, in, out);
}
void Communicator::AllGather(const Tensor& in, Tensor& out) {
  AllGatherWith(&Communicator::DoAllGather, in, out);
}
void Communicator::AllGatherAsync(const Tensor& in, Tensor& out) {
  AllGatherWith(&Communicator::DoAllGatherAsync, in, out);
}

void Communicator::WaitAll() {
  if (size_ > 1) DoWaitAll();
}

void Communicator::Broadcast(Tensor& buffer, int root) {
  TRIMTAB_ASSERT(buffer.defined(), "broadcast of an undefined tensor");
  TRIMTAB_ASSERT(root >= 0 && root < size_, "broadcast: root {} is not in a group of {}", root,
                 size_);
  if (size_ == 1) return;
  const ReportMessage report(buffer, {CollectiveKind::kBroadcast, group_, size_, buffer.bytes()});
  DoBroadcast(buffer, root);
}

void Communicator::AllToAll(const Tensor& in, Tensor& out) {
  CheckPair("all-to-all", in, out);
  TRIMTAB_ASSERT(in.numel() == out.numel() && in.numel() % size_ == 0,
                 "all-to-all over {} ranks: {} into {}", size_, in.shape().ToString(),
                 out.shape().ToString());
  if (size_ == 1) return CopyUnlessSame(in, out);
  const auto* from = static_cast<const char*>(in.raw());
  const auto* to = static_cast<const char*>(out.raw());
  TRIMTAB_ASSERT(from == nullptr || from + in.bytes() <= to || to + out.bytes() <= from,
                 "all-to-all: input and output overlap");
  const ReportMessage report(in, {CollectiveKind::kAllToAll, group_, size_, in.bytes()});
  DoAllToAll(in, out);
}

void Communicator::Send(const Tensor& tensor, int destination) {
  TRIMTAB_ASSERT(tensor.defined(), "send of an undefined tensor");
  CheckPeer("send", rank_, destination, size_);
  const ReportMessage report(tensor, {CollectiveKind::kSend, group_, size_, tensor.bytes()});
  DoSend(tensor, destination);
}

void Communicator::Recv(Tensor& tensor, int source) {
  TRIMTAB_ASSERT(tensor.defined(), "receive into an undefined tensor");
  CheckPeer("receive", rank_, source, size_);
  const ReportMessage report(tensor, {CollectiveKind::kRecv, group_, size_, tensor.bytes()});
  DoRecv(tensor, source);
}

void Communicator::Barrier() {
  if (size_ > 1) DoBarrier();
}

const CudaComm& CudaCommOf(const Device& device) {
  if (device.cuda_comm() == nullptr) {
    throw EnvironmentError("this device has no messages between ranks");
  }
  return *device.cuda_comm();
}

}  // namespace trimtab
