#include "engine/comm/cuda/nccl_communicator.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/comm/cuda/nccl_check.h"
#include "engine/comm/cuda/nccl_groups.h"
#include "engine/comm/cuda/nccl_links.h"
#include "engine/comm/cuda/nccl_membership.h"
#include "engine/comm/cuda/nccl_streams.h"
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/stream.h"

namespace trimtab {
namespace {

/// What the project relies on, unless the user says otherwise.
void ChooseSettings() {
  // All links are made when a group is, not at its first message: that may be in a capture.
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  // A rank's groups work at the same time, on several streams. This keeps their order the same on
  // every rank, without which they could wait for one another (NcclKeepsLaunchOrder).
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
}

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kBf16:
      return ncclBfloat16;
    case DType::kF16:
      return ncclFloat16;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kU16:
    case DType::kI8:
    case DType::kU8:
      break;
  }
  TRIMTAB_ASSERT(false, "no sum or maximum of {}", Name(dtype));
}

size_t Count(const Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }
size_t Bytes(const Tensor& tensor) { return static_cast<size_t>(tensor.bytes()); }

int64_t NcclVersion() {
  int version = 0;
  // One that does not say is taken for the oldest.
  return Nccl().get_version(&version) == ncclSuccess ? version : kOldestNccl;
}

struct Streams {
  std::unique_ptr<CudaStream> own;
  cudaStream_t async = nullptr;
};
Streams StreamsOf(const CudaDevice& device, GroupKind group) {
  switch (AsyncStreamOf(group, NcclVersion())) {
    case NcclStreamKind::kDevice:
      return {nullptr, device.Activate()};
    case NcclStreamKind::kShared:
      return {nullptr, device.comm_stream()};
    case NcclStreamKind::kOwn:
      break;
  }
  auto own = std::make_unique<CudaStream>(CudaStream::Priority::kHigh);
  const cudaStream_t async = own->get();
  return {std::move(own), async};
}

/// What was submitted to a stream beside the device's own.
class NcclPending final : public PendingMessage {
 public:
  NcclPending(const CudaDevice& device, cudaStream_t stream) : device_(device) {
    after_.Record(stream);
  }
  void Wait() override { WaitForEvent(device_.Activate(), after_); }

 private:
  const CudaDevice& device_;
  CudaEvent after_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Device& device, GroupKind group, int rank, int size, ShareNcclId share_id)
      : Communicator(group, rank, size),
        device_(static_cast<CudaDevice&>(device)),
        stream_((ChooseSettings(), device_.Activate())),
        groups_(device_.State<NcclGroups>()),
        streams_(StreamsOf(device_, group)),
        async_stream_(streams_.async),
        barrier_(AllocateDeviceMemory(sizeof(int32_t))),
        membership_(Nccl(), groups_, fmt::format("the {} group of {}", Name(group), size), rank,
                    size, std::move(share_id)) {
    if (!NcclCanRun(group, size, NcclVersion())) {
      throw EnvironmentError(fmt::format(
          "{} sends messages beside others, which needs NCCL 2.26 or newer", membership_.name()));
    }
    FillBarrier();
  }

  ~NcclCommunicator() override {
    // Destroying waits for what is under way. After a failure, here or in what unwinds now, a peer
    // may never do its part.
    if (failed_ || std::uncaught_exceptions() > 0) groups_.AbortAll("the rank has failed");
    if (links_) links_->Destroy();
    membership_.Destroy();
  }

 protected:
  void DoAbort(const std::string& reason) override { groups_.AbortAll(reason); }

  void DoAllReduce(Tensor& buffer, ReduceOp op) override { AllReduceOn(Join(), buffer, op); }
  void DoReduceScatter(const Tensor& in, Tensor& out) override { ReduceScatterOn(Join(), in, out); }
  void DoAllGather(const Tensor& in, Tensor& out) override { AllGatherOn(Join(), in, out); }

  Pending DoAllReduceAsync(Tensor& buffer, ReduceOp op) override {
    AllReduceOn(ForkHere(), buffer, op);
    return MakePending(async_stream_);
  }
  Pending DoReduceScatterAsync(const Tensor& in, Tensor& out) override {
    ReduceScatterOn(ForkHere(), in, out);
    return MakePending(async_stream_);
  }
  Pending DoAllGatherAsync(const Tensor& in, Tensor& out) override {
    AllGatherOn(ForkHere(), in, out);
    return MakePending(async_stream_);
  }

  void DoBroadcast(Tensor& buffer, int root) override {
    CheckDevice(buffer);
    const cudaStream_t stream = Join();
    Call("ncclBroadcast", [&](ncclComm_t comm) {
      return Nccl().broadcast(buffer.raw(), buffer.raw(), Bytes(buffer), ncclInt8, root, comm,
                              stream);
    });
  }

  void DoAllToAll(const Tensor& in, std::span<const BufferPart> send, Tensor& out,
                  std::span<const BufferPart> receive) override {
    CheckDevice(in);
    const cudaStream_t stream = Join();
    const int64_t element = SizeOf(in.dtype());
    const auto bytes = [element](int64_t count) { return static_cast<size_t>(count * element); };
    // One group: each send meets its receive while the others are under way.
    Call("ncclSend and ncclRecv", [&](ncclComm_t comm) {
      ncclResult_t result = Nccl().group_start();
      for (int peer = 0; peer < size() && result == ncclSuccess; ++peer) {
        const BufferPart& sent = send[static_cast<size_t>(peer)];
        const BufferPart& received = receive[static_cast<size_t>(peer)];
        if (sent.count > 0) {
          result = Nccl().send(static_cast<const char*>(in.raw()) + bytes(sent.begin),
                               bytes(sent.count), ncclInt8, peer, comm, stream);
        }
        if (result != ncclSuccess || received.count == 0) continue;
        result = Nccl().recv(static_cast<char*>(out.raw()) + bytes(received.begin),
                             bytes(received.count), ncclInt8, peer, comm, stream);
      }
      const ncclResult_t end = Nccl().group_end();
      return result != ncclSuccess ? result : end;
    });
  }

  Pending DoSendAsync(const Tensor& tensor, int destination) override {
    CheckDevice(tensor);
    Comm();  // and the links
    const NcclLink link = LinkOr(links_ ? links_->to(destination) : nullptr, destination);
    Fork(link.stream);
    Call("ncclSend", link.comm, [&] {
      return Nccl().send(tensor.raw(), Bytes(tensor), ncclInt8, link.peer, link.comm, link.stream);
    });
    return MakePending(link.stream);
  }

  Pending DoRecvAsync(Tensor& tensor, int source) override {
    CheckDevice(tensor);
    Comm();  // and the links
    const NcclLink link = LinkOr(links_ ? links_->from(source) : nullptr, source);
    Fork(link.stream);
    Call("ncclRecv", link.comm, [&] {
      return Nccl().recv(tensor.raw(), Bytes(tensor), ncclInt8, link.peer, link.comm, link.stream);
    });
    return MakePending(link.stream);
  }

  void DoBarrier() override {
    const cudaStream_t stream = Join();
    Call("ncclAllReduce", [&](ncclComm_t comm) {
      return Nccl().all_reduce(barrier_.get(), barrier_.get(), 1, ncclInt32, ncclMax, comm, stream);
    });
    device_.Synchronize();
    groups_.ThrowIfFailed();
  }

  bool DoCanCapture() const override { return true; }

 private:
  void CheckDevice(const Tensor& tensor) const {
    TRIMTAB_ASSERT(&tensor.device() == &device_,
                   "a NCCL communicator was given a tensor of another device than its own");
  }

  void FillBarrier() {
    TRIMTAB_CUDA_CHECK(cudaMemsetAsync(barrier_.get(), 0, sizeof(int32_t), stream_));
  }

  /// Puts what `stream` is given next behind what the device was given so far.
  void Fork(cudaStream_t stream) {
    before_.Record(device_.Activate());
    WaitForEvent(stream, before_);
  }

  /// The stream for asynchronous messages, behind what the device was given so far.
  cudaStream_t ForkHere() {
    Fork(async_stream_);
    pending_ = true;
    return async_stream_;
  }

  Pending MakePending(cudaStream_t stream) const {
    return std::make_unique<NcclPending>(device_, stream);
  }

  /// The way to or from `peer`: where there is none of its own, through the group's communicator.
  NcclLink LinkOr(const NcclLink* link, int peer) {
    if (link != nullptr) return *link;
    pending_ = true;
    return {Comm(), async_stream_, peer};
  }

  /// The device's stream, behind the asynchronous calls of the group so far: NCCL works through
  /// them in order.
  cudaStream_t Join() {
    const cudaStream_t stream = device_.Activate();
    if (pending_) {
      after_.Record(async_stream_);
      WaitForEvent(stream, after_);
      pending_ = false;
    }
    return stream;
  }

  void AllReduceOn(cudaStream_t stream, Tensor& buffer, ReduceOp op) {
    CheckDevice(buffer);
    const ncclRedOp_t nccl_op = op == ReduceOp::kSum ? ncclSum : ncclMax;
    Call("ncclAllReduce", [&](ncclComm_t comm) {
      return Nccl().all_reduce(buffer.raw(), buffer.raw(), Count(buffer), TypeOf(buffer.dtype()),
                               nccl_op, comm, stream);
    });
  }

  void ReduceScatterOn(cudaStream_t stream, const Tensor& in, Tensor& out) {
    CheckDevice(in);
    Call("ncclReduceScatter", [&](ncclComm_t comm) {
      return Nccl().reduce_scatter(in.raw(), out.raw(), Count(out), TypeOf(in.dtype()), ncclSum,
                                   comm, stream);
    });
  }

  void AllGatherOn(cudaStream_t stream, const Tensor& in, Tensor& out) {
    CheckDevice(in);
    Call("ncclAllGather", [&](ncclComm_t comm) {
      return Nccl().all_gather(in.raw(), out.raw(), Bytes(in), ncclInt8, comm, stream);
    });
  }

  /// The group's communicator and its links, made at the first use.
  ncclComm_t Comm() {
    if (const ncclComm_t made = membership_.made()) return made;
    TRIMTAB_ASSERT(!device_.capturing(), "{} is first used in a capture", membership_.name());
    const ncclComm_t comm = membership_.Use();
    if (SendsMessages(group()) && size() > 1) {
      links_.emplace(groups_, comm, membership_.name(), rank(), size(),
                     [this](const char* call, ncclResult_t result) { Check(call, result); });
    }
    return comm;
  }

  /// Makes a call of NCCL, of which `function` is given the group's communicator. Errors of the
  /// network or of a peer show up at a later call.
  template <typename Function>
  void Call(const char* name, const Function& function) {
    const ncclComm_t comm = Comm();
    Call(name, comm, [&] { return function(comm); });
  }
  template <typename Function>
  void Call(const char* name, ncclComm_t comm, const Function& function) {
    Check(name, groups_.Call(comm, function));
  }

  void Check(const char* name, ncclResult_t result) {
    if (result == ncclSuccess) return;
    failed_ = true;
    throw CommError(NcclMessage(
        Nccl(),
        fmt::format("{} of rank {} in the {} group of {}", name, rank(), Name(group()), size()),
        result, membership_.made()));
  }

  CudaDevice& device_;
  cudaStream_t stream_;
  NcclGroups& groups_;
  Streams streams_;
  cudaStream_t async_stream_;
  DeviceMemory barrier_;
  CudaEvent before_;
  CudaEvent after_;
  bool pending_ = false;  // calls in the asynchronous stream that the device's has not joined
  NcclMembership membership_;
  std::optional<NcclLinks> links_;
  bool failed_ = false;
};

class NcclWatch final : public WaitWatch {
 public:
  NcclWatch(NcclGroups& groups, std::unique_ptr<WaitWatch> others)
      : groups_(groups), others_(std::move(others)) {}
  void Begin() override { others_->Begin(); }
  void End() override { others_->End(); }
  void Check() override {
    others_->Check();
    groups_.ThrowIfFailed();
  }

 private:
  NcclGroups& groups_;
  std::unique_ptr<WaitWatch> others_;
};

}  // namespace

std::unique_ptr<WaitWatch> WatchNccl(Device& device, std::unique_ptr<WaitWatch> watch) {
  return std::make_unique<NcclWatch>(static_cast<CudaDevice&>(device).State<NcclGroups>(),
                                     std::move(watch));
}

NcclId MakeNcclId() {
  ChooseSettings();
  ncclUniqueId unique;
  const ncclResult_t result = Nccl().get_unique_id(&unique);
  if (result != ncclSuccess)
    throw CommError(NcclMessage(Nccl(), "ncclGetUniqueId", result, nullptr));
  NcclId id;
  std::memcpy(id.data(), &unique, id.size());
  return id;
}

std::unique_ptr<Communicator> MakeNcclCommunicator(Device& device, GroupKind group, int rank,
                                                   int size, ShareNcclId share_id) {
  return std::make_unique<NcclCommunicator>(device, group, rank, size, std::move(share_id));
}

}  // namespace trimtab
