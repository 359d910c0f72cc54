// Collectives over threads of one process. Each rank reads its peers' buffers, and where it
// computes a result that all of them need, writes it straight into all of their buffers.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/base/units.h"
#include "engine/comm/inproc_group.h"
#include "engine/comm/reduce_kernels.h"

namespace trimtab {
namespace {

// Elements by which the slices of an all-reduce are aligned: at least a cache line of any dtype,
// and enough that small buffers are not torn between cores.
constexpr int64_t kSliceAlignment = 256;

void CopyElements(DType dtype, const void* from, int64_t from_offset, void* to, int64_t to_offset,
                  int64_t count) {
  const int64_t size = SizeOf(dtype);
  const auto* source = static_cast<const char*>(from) + from_offset * size;
  auto* target = static_cast<char*>(to) + to_offset * size;
  if (count == 0 || source == target) return;
  std::memcpy(target, source, static_cast<size_t>(count * size));
}

class InprocCommunicator final : public Communicator {
 public:
  InprocCommunicator(std::shared_ptr<InprocGroup> group, int rank)
      : Communicator(group->kind(), rank, group->size()), shared_(std::move(group)) {
    shared_->Join(rank);
    // Scratch for the kernels, sized once so that no call allocates.
    sources_.resize(static_cast<size_t>(size()));
    targets_.resize(static_cast<size_t>(size()));
  }
  ~InprocCommunicator() override { shared_->Leave(rank()); }

  void Abort(const std::string& reason) override { shared_->Abort(reason); }

 protected:
  void DoAllReduce(Tensor& buffer, ReduceOp op) override {
    Meet(CollectiveKind::kAllReduce, buffer, buffer.numel(), op, -1, &buffer, &buffer);
    const int64_t count = buffer.numel();
    const int64_t slice = RoundUp(CeilDiv(count, size()), kSliceAlignment);
    const int64_t begin = std::min(count, slice * rank());
    const int64_t end = std::min(count, begin + slice);
    for (int peer = 0; peer < size(); ++peer) {
      sources_[static_cast<size_t>(peer)] = shared_->call(peer).in;
      targets_[static_cast<size_t>(peer)] = shared_->call(peer).out;
    }
    ReduceRange(buffer.dtype(), op, sources_, targets_, begin, end, 0);
    shared_->Finish(rank());
  }

  void DoReduceScatter(const Tensor& in, Tensor& out) override {
    const int64_t part = out.numel();
    Meet(CollectiveKind::kReduceScatter, in, part, ReduceOp::kSum, -1, &in, &out);
    for (int peer = 0; peer < size(); ++peer) {
      sources_[static_cast<size_t>(peer)] = shared_->call(peer).in;
    }
    targets_[0] = out.raw();
    ReduceRange(in.dtype(), ReduceOp::kSum, sources_, std::span(targets_).first(1), part * rank(),
                part * (rank() + 1), -part * rank());
    shared_->Finish(rank());
  }

  void DoAllGather(const Tensor& in, Tensor& out) override {
    const int64_t part = in.numel();
    Meet(CollectiveKind::kAllGather, in, part, ReduceOp::kSum, -1, &in, &out);
    for (int peer = 0; peer < size(); ++peer) {
      CopyElements(in.dtype(), shared_->call(peer).in, 0, out.raw(), part * peer, part);
    }
    shared_->Finish(rank());
  }

  void DoBroadcast(Tensor& buffer, int root) override {
    Meet(CollectiveKind::kBroadcast, buffer, buffer.numel(), ReduceOp::kSum, root, &buffer,
         &buffer);
    CopyElements(buffer.dtype(), shared_->call(root).in, 0, buffer.raw(), 0, buffer.numel());
    shared_->Finish(rank());
  }

  void DoAllToAll(const Tensor& in, Tensor& out) override {
    const int64_t part = in.numel() / size();
    Meet(CollectiveKind::kAllToAll, in, part, ReduceOp::kSum, -1, &in, &out);
    for (int peer = 0; peer < size(); ++peer) {
      CopyElements(in.dtype(), shared_->call(peer).in, part * rank(), out.raw(), part * peer, part);
    }
    shared_->Finish(rank());
  }

  void DoSend(const Tensor& tensor, int destination) override {
    shared_->Send(rank(), MakeCall(CollectiveKind::kSend, tensor, tensor.numel(), ReduceOp::kSum,
                                   destination, &tensor, nullptr));
  }

  void DoRecv(Tensor& tensor, int source) override {
    shared_->Recv(rank(), MakeCall(CollectiveKind::kRecv, tensor, tensor.numel(), ReduceOp::kSum,
                                   source, nullptr, &tensor));
  }

  void DoBarrier() override {
    shared_->Begin(rank(), InprocCall{});
    shared_->Finish(rank());
  }

 private:
  static InprocCall MakeCall(CollectiveKind kind, const Tensor& tensor, int64_t count, ReduceOp op,
                             int peer, const Tensor* in, const Tensor* out) {
    TRIMTAB_ASSERT(tensor.device().kind() == DeviceKind::kCpu,
                   "the in-process communicator moves host memory only");
    return {.kind = kind,
            .dtype = tensor.dtype(),
            .count = count,
            .op = op,
            .peer = peer,
            .in = in == nullptr ? nullptr : in->raw(),
            .out = out == nullptr ? nullptr : out->raw()};
  }

  void Meet(CollectiveKind kind, const Tensor& tensor, int64_t count, ReduceOp op, int root,
            const Tensor* in, const Tensor* out) {
    shared_->Begin(rank(), MakeCall(kind, tensor, count, op, root, in, out));
  }

  std::shared_ptr<InprocGroup> shared_;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
};

}  // namespace

std::unique_ptr<Communicator> MakeInprocCommunicator(std::shared_ptr<InprocGroup> group, int rank) {
  TRIMTAB_ASSERT(rank >= 0 && rank < group->size(), "rank {} of a group of {}", rank,
                 group->size());
  return std::make_unique<InprocCommunicator>(std::move(group), rank);
}

std::vector<std::unique_ptr<Communicator>> MakeInprocGroup(GroupKind group, int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto shared =
      std::make_shared<InprocGroup>(group, ranks, std::make_shared<WaitBoard>(size));
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (const int rank : ranks) communicators.push_back(MakeInprocCommunicator(shared, rank));
  return communicators;
}

}  // namespace trimtab
