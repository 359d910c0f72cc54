// Collectives of transfers between two ranks. A reduction is done where its result is kept, in rank
// order, so its bits are those of ranks that are threads.
//
// Small inputs of all-gathers and all-reduces are passed on in log2(R) rounds, and every rank
// reduces all of them; broadcasts go down a tree. With large inputs every pair of ranks exchanges
// its parts: an all-reduce then moves 2 (R - 1) / R of the buffer each way, as a ring does.
#include "engine/comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

#include "engine/base/units.h"
#include "engine/comm/inproc/reduce_kernels.h"
#include "engine/comm/mpi/exchange_rounds.h"

namespace trimtab {
namespace {

// Bytes of one rank's slice that are reduced at a time: bounds the scratch.
constexpr int64_t kSliceBytes = kMiB;
// Inputs of all ranks together, up to which they are passed on in rounds: their number counts then,
// and not their size.
constexpr int64_t kSmallBytes = 64 * kKiB;

char* At(const void* base, int64_t elements, DType dtype) {
  return static_cast<char*>(const_cast<void*>(base)) + elements * SizeOf(dtype);
}

using Scratch = std::shared_ptr<std::vector<char>>;

/// Around a collective: where it throws, its buffers outlive it.
class KeepOnFailure {
 public:
  KeepOnFailure(const Tensor& in, const Tensor& out, const Scratch& scratch)
      : in_(in), out_(out), scratch_(scratch) {}
  ~KeepOnFailure() {
    if (std::uncaught_exceptions() == exceptions_) return;
    for (const Tensor* tensor : {&in_, &out_}) MpiWorld::Keep(std::make_shared<Tensor>(*tensor));
    MpiWorld::Keep(scratch_);
  }
  KeepOnFailure(const KeepOnFailure&) = delete;
  KeepOnFailure& operator=(const KeepOnFailure&) = delete;

 private:
  const Tensor& in_;
  const Tensor& out_;
  const Scratch& scratch_;
  const int exceptions_ = std::uncaught_exceptions();
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiWorld& world, GroupKind group, int rank, std::vector<int> members)
      : Communicator(group, rank, static_cast<int>(members.size())),
        world_(world),
        members_(std::move(members)) {
    sources_.resize(members_.size());
  }

 protected:
  void DoAbort(const std::string& reason) override {
    world_.Fail({.rank = world_.rank(), .message = reason});
  }

  void DoAllReduce(Tensor& buffer, ReduceOp op) override {
    const KeepOnFailure keep(buffer, buffer, scratch_);
    const CommCall call = MakeCall(CollectiveKind::kAllReduce, buffer, buffer.numel(), op, -1);
    world_.Agree(place(), call);
    if (buffer.bytes() * size() <= kSmallBytes) {
      GatherInRounds(call, buffer);
      void* out = buffer.raw();
      return ReduceRange(call.dtype, call.op, sources_, std::span(&out, 1), 0, buffer.numel(), 0);
    }
    const int64_t slice = SliceElements(buffer.dtype());
    for (int64_t begin = 0; begin < buffer.numel(); begin += slice * size()) {
      const int64_t count = std::min(slice * size(), buffer.numel() - begin);
      AllReducePart(call, buffer.Slice(begin, {count}));
    }
  }

  void DoReduceScatter(const Tensor& in, Tensor& out) override {
    const KeepOnFailure keep(in, out, scratch_);
    const int64_t part = out.numel();
    const CommCall call = MakeCall(CollectiveKind::kReduceScatter, in, part, ReduceOp::kSum, -1);
    world_.Agree(place(), call);
    const int64_t slice = SliceElements(in.dtype());
    for (int64_t begin = 0; begin < part; begin += slice) {
      const int64_t count = std::min(slice, part - begin);
      ReduceHere(
          call,
          [&](int peer) {
            return Piece{part * peer + begin, count};
          },
          in.raw(), At(out.raw(), begin, out.dtype()));
    }
  }

  void DoAllGather(const Tensor& in, Tensor& out) override {
    const KeepOnFailure keep(in, out, scratch_);
    const int64_t part = in.numel();
    const CommCall call = MakeCall(CollectiveKind::kAllGather, in, part, ReduceOp::kSum, -1);
    world_.Agree(place(), call);
    if (out.bytes() <= kSmallBytes) {
      GatherInRounds(call, in);
      for (int peer = 0; peer < size() && part > 0; ++peer) {
        std::memcpy(At(out.raw(), part * peer, out.dtype()), sources_[static_cast<size_t>(peer)],
                    static_cast<size_t>(in.bytes()));
      }
      return;
    }
    char* own = At(out.raw(), part * rank(), out.dtype());
    if (own != in.raw() && part > 0) std::memcpy(own, in.raw(), static_cast<size_t>(in.bytes()));
    Exchange(call, [&](int peer, MpiWorld::Transfer& transfer) {
      transfer.send = in.raw();
      transfer.receive = At(out.raw(), part * peer, out.dtype());
      transfer.send_bytes = transfer.receive_bytes = in.bytes();
    });
  }

  void DoBroadcast(Tensor& buffer, int root) override {
    const KeepOnFailure keep(buffer, buffer, scratch_);
    const CommCall call =
        MakeCall(CollectiveKind::kBroadcast, buffer, buffer.numel(), ReduceOp::kSum, root);
    world_.Agree(place(), call);
    const TreePlace tree = PlaceInTree(rank(), size(), root);
    const auto move = [&](MpiWorld::Transfer transfer) {
      world_.Move(place(), call, {&transfer, 1});
    };
    if (tree.parent >= 0) {
      move({.peer = WorldRank(tree.parent),
            .receive = buffer.raw(),
            .receive_bytes = buffer.bytes()});
    }
    transfers_.clear();
    for (const int child : tree.children) {
      transfers_.push_back(
          {.peer = WorldRank(child), .send = buffer.raw(), .send_bytes = buffer.bytes()});
    }
    world_.Move(place(), call, transfers_);
  }

  void DoAllToAll(const Tensor& in, std::span<const BufferPart> send, Tensor& out,
                  std::span<const BufferPart> receive) override {
    const KeepOnFailure keep(in, out, scratch_);
    const CommCall call = MakeCall(CollectiveKind::kAllToAll, in, 0, ReduceOp::kSum, -1);
    world_.Agree(place(), call);
    CheckPeersParts(call, send, receive);
    const auto own = static_cast<size_t>(rank());
    const int64_t element = SizeOf(in.dtype());
    if (send[own].count > 0) {
      std::memcpy(At(out.raw(), receive[own].begin, out.dtype()),
                  At(in.raw(), send[own].begin, in.dtype()),
                  static_cast<size_t>(send[own].count * element));
    }
    Exchange(call, [&](int peer, MpiWorld::Transfer& transfer) {
      const BufferPart& sent = send[static_cast<size_t>(peer)];
      const BufferPart& received = receive[static_cast<size_t>(peer)];
      transfer.send = At(in.raw(), sent.begin, in.dtype());
      transfer.send_bytes = sent.count * element;
      transfer.receive = At(out.raw(), received.begin, out.dtype());
      transfer.receive_bytes = received.count * element;
    });
  }

  Pending DoSendAsync(const Tensor& tensor, int destination) override {
    return SubmitMessage(CollectiveKind::kSend, tensor, destination);
  }
  Pending DoRecvAsync(Tensor& tensor, int source) override {
    return SubmitMessage(CollectiveKind::kRecv, tensor, source);
  }

  void DoBarrier() override { world_.Agree(place(), {}); }

 private:
  /// Elements [begin, begin + count) of a buffer.
  struct Piece {
    int64_t begin = 0;
    int64_t count = 0;
  };

  MpiWorld::Place place() const { return {group(), rank(), members_}; }

  static CommCall MakeCall(CollectiveKind kind, const Tensor& tensor, int64_t count, ReduceOp op,
                           int peer) {
    TRIMTAB_ASSERT(tensor.device().kind() == DeviceKind::kCpu,
                   "the MPI communicator moves host memory only");
    return {.kind = kind, .dtype = tensor.dtype(), .count = count, .op = op, .peer = peer};
  }

  Pending SubmitMessage(CollectiveKind kind, const Tensor& tensor, int peer) {
    const CommCall call = MakeCall(kind, tensor, tensor.numel(), ReduceOp::kSum, peer);
    return world_.Submit(place(), call, tensor);
  }

  static int64_t SliceElements(DType dtype) { return kSliceBytes / SizeOf(dtype); }

  int WorldRank(int peer) const { return members_[static_cast<size_t>(peer)]; }

  /// Leaves the inputs of all ranks in the scratch, and sources_ points to them in rank order.
  void GatherInRounds(const CommCall& call, const Tensor& in) {
    const int64_t bytes = in.bytes();
    scratch_->resize(static_cast<size_t>(bytes * size()));
    // Blocks in the order in which they come: of this rank, of the one before it, and so on.
    if (bytes > 0) std::memcpy(scratch_->data(), in.raw(), static_cast<size_t>(bytes));
    for (const DisseminationRound& round : DisseminationRounds(rank(), size())) {
      const MpiWorld::Transfer transfers[] = {{.peer = WorldRank(round.to),
                                               .send = scratch_->data(),
                                               .send_bytes = bytes * round.blocks},
                                              {.peer = WorldRank(round.from),
                                               .receive = scratch_->data() + bytes * round.distance,
                                               .receive_bytes = bytes * round.blocks}};
      world_.Move(place(), call, transfers);
    }
    for (int back = 0; back < size(); ++back) {
      sources_[static_cast<size_t>((rank() + size() - back) % size())] =
          scratch_->data() + bytes * back;
    }
  }

  /// Fills in a transfer with each peer and moves them together.
  template <typename Fill>
  void Exchange(const CommCall& call, const Fill& fill) {
    transfers_.clear();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      fill(peer, transfers_.emplace_back(MpiWorld::Transfer{.peer = WorldRank(peer)}));
    }
    world_.Move(place(), call, transfers_);
  }

  /// Sends every peer its piece of `in`, and reduces the pieces that come for this rank, with its
  /// own, into `out`, which may be its own piece.
  template <typename PieceOf>
  void ReduceHere(const CommCall& call, const PieceOf& piece_of, const void* in, void* out) {
    const Piece own = piece_of(rank());
    const int64_t bytes = own.count * SizeOf(call.dtype);
    scratch_->resize(static_cast<size_t>(bytes * size()));
    Exchange(call, [&](int peer, MpiWorld::Transfer& transfer) {
      const Piece piece = piece_of(peer);
      transfer.send = At(in, piece.begin, call.dtype);
      transfer.send_bytes = piece.count * SizeOf(call.dtype);
      transfer.receive = scratch_->data() + bytes * peer;
      transfer.receive_bytes = bytes;
    });
    for (int peer = 0; peer < size(); ++peer) {
      sources_[static_cast<size_t>(peer)] = scratch_->data() + bytes * peer;
    }
    sources_[static_cast<size_t>(rank())] = At(in, own.begin, call.dtype);
    ReduceRange(call.dtype, call.op, sources_, std::span(&out, 1), 0, own.count, 0);
  }

  /// Throws on both ranks where one sends another number of elements than the other expects: they
  /// tell each other both numbers, {sent, expected}.
  void CheckPeersParts(const CommCall& call, std::span<const BufferPart> send,
                       std::span<const BufferPart> receive) {
    using Counts = std::array<int64_t, 2>;
    scratch_->resize(2 * sizeof(Counts) * static_cast<size_t>(size()));
    const auto counts = [this](int peer, bool own) {
      return scratch_->data() + sizeof(Counts) * static_cast<size_t>(2 * peer + (own ? 1 : 0));
    };
    Exchange(call, [&](int peer, MpiWorld::Transfer& transfer) {
      const auto other = static_cast<size_t>(peer);
      const Counts own = {send[other].count, receive[other].count};
      std::memcpy(counts(peer, true), own.data(), sizeof(Counts));
      transfer.send = counts(peer, true);
      transfer.receive = counts(peer, false);
      transfer.send_bytes = transfer.receive_bytes = sizeof(Counts);
    });
    for (int peer = 0; peer < size(); ++peer) {
      const auto other = static_cast<size_t>(peer);
      Counts theirs = {receive[other].count, send[other].count};  // of this rank itself: as it is
      if (peer != rank()) std::memcpy(theirs.data(), counts(peer, false), sizeof(Counts));
      CheckParts(group(), rank(), send[other].count, peer, theirs[1]);
      CheckParts(group(), peer, theirs[0], rank(), receive[other].count);
    }
  }

  void AllReducePart(const CommCall& call, const Tensor& buffer) {
    const int64_t slice = CeilDiv(buffer.numel(), size());
    const auto piece_of = [&](int peer) {
      const int64_t begin = std::min(slice * peer, buffer.numel());
      return Piece{begin, std::min(slice, buffer.numel() - begin)};
    };
    const Piece own = piece_of(rank());
    char* reduced = At(buffer.raw(), own.begin, call.dtype);
    ReduceHere(call, piece_of, buffer.raw(), reduced);
    Exchange(call, [&](int peer, MpiWorld::Transfer& transfer) {
      const Piece piece = piece_of(peer);
      transfer.send = reduced;
      transfer.send_bytes = own.count * SizeOf(call.dtype);
      transfer.receive = At(buffer.raw(), piece.begin, call.dtype);
      transfer.receive_bytes = piece.count * SizeOf(call.dtype);
    });
  }

  MpiWorld& world_;
  std::vector<int> members_;
  std::vector<MpiWorld::Transfer> transfers_;
  Scratch scratch_ = std::make_shared<std::vector<char>>();
  std::vector<const void*> sources_;
};

}  // namespace

std::unique_ptr<Communicator> MakeMpiCommunicator(MpiWorld& world, GroupKind group,
                                                  std::vector<int> members) {
  const auto found = std::find(members.begin(), members.end(), world.rank());
  TRIMTAB_ASSERT(found != members.end(), "rank {} is not in its own group", world.rank());
  const int rank = static_cast<int>(found - members.begin());
  return std::make_unique<MpiCommunicator>(world, group, rank, std::move(members));
}

}  // namespace trimtab
