// Collectives over threads of one process. Each rank reads its peers' buffers, and where it
// computes a result that all of them need, writes it straight into all of their buffers.
#include <algorithm>
#include <exception>
#include <numeric>

#include "engine/base/units.h"
#include "engine/comm/inproc/inproc_group.h"
#include "engine/comm/inproc/inproc_memory.h"

namespace trimtab {
namespace {

// Elements by which the slices of an all-reduce are aligned: at least a cache line of any dtype,
// and enough that small buffers are not torn between cores.
constexpr int64_t kSliceAlignment = 256;

/// A message that its peer moves, or this rank has moved.
class InprocPending final : public PendingMessage {
 public:
  InprocPending(std::shared_ptr<InprocGroup> group, Device& device,
                std::shared_ptr<InprocMessage> message)
      : group_(std::move(group)), device_(device), message_(std::move(message)) {}
  ~InprocPending() override {
    if (message_ != nullptr) group_->Withdraw(*message_);
  }

  void Wait() override {
    const std::shared_ptr<InprocMessage> message = std::move(message_);
    group_->Await(*message);
    if (message->moved != nullptr) message->moved->Await(device_);
  }

 private:
  std::shared_ptr<InprocGroup> group_;
  Device& device_;
  std::shared_ptr<InprocMessage> message_;  // null once it has been waited for
};

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

 protected:
  void DoAbort(const std::string& reason) override { shared_->Abort(reason); }

  void DoAllReduce(Tensor& buffer, ReduceOp op) override {
    const int64_t count = buffer.numel();
    const InprocCall call =
        MakeCall(CollectiveKind::kAllReduce, buffer, count, op, -1, &buffer, &buffer);
    Together(call, [&](bool copied) {
      for (int peer = 0; peer < size(); ++peer) {
        sources_[static_cast<size_t>(peer)] = shared_->call(rank(), peer).in;
        targets_[static_cast<size_t>(peer)] = shared_->call(rank(), peer).out;
      }
      if (copied) {
        // Each rank makes all of the sum: it may not touch what its peers have gone on with.
        targets_[0] = buffer.raw();
        return memory_.Reduce(buffer, op, sources_, std::span(targets_).first(1), 0, count, 0);
      }
      const int64_t slice = RoundUp(CeilDiv(count, size()), kSliceAlignment);
      const int64_t begin = std::min(count, slice * rank());
      const int64_t end = std::min(count, begin + slice);
      memory_.Reduce(buffer, op, sources_, targets_, begin, end, 0);
    });
  }

  void DoReduceScatter(const Tensor& in, Tensor& out) override {
    const int64_t part = out.numel();
    const InprocCall call =
        MakeCall(CollectiveKind::kReduceScatter, in, part, ReduceOp::kSum, -1, &in, &out);
    Together(call, [&](bool) {
      for (int peer = 0; peer < size(); ++peer) {
        sources_[static_cast<size_t>(peer)] = shared_->call(rank(), peer).in;
      }
      targets_[0] = out.raw();
      memory_.Reduce(out, ReduceOp::kSum, sources_, std::span(targets_).first(1), part * rank(),
                     part * (rank() + 1), -part * rank());
    });
  }

  void DoAllGather(const Tensor& in, Tensor& out) override {
    const int64_t part = in.numel();
    const InprocCall call =
        MakeCall(CollectiveKind::kAllGather, in, part, ReduceOp::kSum, -1, &in, &out);
    Together(call, [&](bool) {
      for (int peer = 0; peer < size(); ++peer) {
        memory_.Copy(shared_->call(rank(), peer).in, 0, out, part * peer, part);
      }
    });
  }

  void DoBroadcast(Tensor& buffer, int root) override {
    const InprocCall call = MakeCall(CollectiveKind::kBroadcast, buffer, buffer.numel(),
                                     ReduceOp::kSum, root, &buffer, &buffer);
    Together(call, [&](bool) {
      memory_.Copy(shared_->call(rank(), root).in, 0, buffer, 0, buffer.numel());
    });
  }

  void DoAllToAll(const Tensor& in, std::span<const BufferPart> send, Tensor& out,
                  std::span<const BufferPart> receive) override {
    InprocCall call = MakeCall(CollectiveKind::kAllToAll, in, 0, ReduceOp::kSum, -1, &in, &out);
    call.send = send;
    call.receive = receive;
    Together(call, [&](bool) {
      const auto own = static_cast<size_t>(rank());
      for (int peer = 0; peer < size(); ++peer) {
        const auto other = static_cast<size_t>(peer);
        const InprocCall& theirs = shared_->call(rank(), peer);
        CheckParts(group(), rank(), send[other].count, peer, theirs.receive[own].count);
        CheckParts(group(), peer, theirs.send[own].count, rank(), receive[other].count);
        memory_.Copy(theirs.in, theirs.send[own].begin, out, receive[other].begin,
                     receive[other].count);
      }
    });
  }

  Pending DoSendAsync(const Tensor& tensor, int destination) override {
    return SubmitMessage(CollectiveKind::kSend, tensor, destination);
  }
  Pending DoRecvAsync(Tensor& tensor, int source) override {
    return SubmitMessage(CollectiveKind::kRecv, tensor, source);
  }

  void DoBarrier() override {
    if (!shared_->Begin(rank(), InprocCall{})) shared_->Finish(rank());
  }

 private:
  InprocCall MakeCall(CollectiveKind kind, const Tensor& tensor, int64_t count, ReduceOp op,
                      int peer, const Tensor* in, const Tensor* out) {
    InprocCall call;
    call.kind = kind;
    call.dtype = tensor.dtype();
    call.count = count;
    call.op = op;
    call.peer = peer;
    if (in != nullptr) {
      call.in = in->raw();
      call.in_bytes = in->bytes();
    }
    if (out != nullptr) call.out = out->raw();
    memory_.Use(tensor.device(), call);
    return call;
  }

  Pending SubmitMessage(CollectiveKind kind, const Tensor& tensor, int peer) {
    const bool sends = kind == CollectiveKind::kSend;
    InprocCall call = MakeCall(kind, tensor, tensor.numel(), ReduceOp::kSum, peer,
                               sends ? &tensor : nullptr, sends ? nullptr : &tensor);
    call.ready = memory_.SetMark();
    return std::make_unique<InprocPending>(
        shared_, tensor.device(), shared_->Submit(rank(), call, [&](const InprocCall& other) {
          memory_.AwaitReady(other);
          memory_.Copy(sends ? call.in : other.in, sends ? other.out : call.out, tensor.bytes());
          return memory_.SetMark();
        }));
  }

  /// Runs this rank's part of a collective, `work`, between those of all ranks arriving and all of
  /// them having finished; or, of copies, work(true) after all have arrived.
  template <typename Work>
  void Together(const InprocCall& call, const Work& work) {
    memory_.SetReady();
    if (shared_->Begin(rank(), call)) return work(true);
    std::exception_ptr failure;
    try {
      memory_.AwaitReady(*shared_, rank());
      work(false);
    } catch (...) {
      failure = std::current_exception();
    }
    // The peers count on this rank to finish, whatever became of its part.
    try {
      memory_.SetDone();
    } catch (...) {
      if (failure == nullptr) failure = std::current_exception();
    }
    shared_->Finish(rank());
    if (failure != nullptr) std::rethrow_exception(failure);
    memory_.AwaitDone();
  }

  std::shared_ptr<InprocGroup> shared_;
  InprocMemory memory_;
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
