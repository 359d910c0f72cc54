// Messages between two ranks. The sender's header travels with the data, and the receiver checks it
// before it believes them.
#include "engine/comm/mpi/mpi_world.h"

namespace trimtab {
namespace {

// Above those of the calls of whole groups: two tags for each group.
constexpr int kFirstMessageTag = 16;

int HeaderTag(GroupKind group) { return kFirstMessageTag + 2 * static_cast<int>(group); }
int DataTag(GroupKind group) { return HeaderTag(group) + 1; }

}  // namespace

class MpiWorld::Message final : public PendingMessage {
 public:
  Message(MpiWorld& world, const Place& place, const CommCall& call, const Tensor& tensor)
      : world_(world),
        place_(place),
        call_(call),
        memory_(std::make_shared<Memory>()),
        header_batch_(world.transport_->NewBatch()),
        data_batch_(world.transport_->NewBatch()) {
    memory_->tensor = tensor;
    CallHeader& header = memory_->header;
    header = MakeCallHeader(place.group, static_cast<int>(place.members.size()), place.rank, call);
    MpiTransport& transport = *world.transport_;
    const int header_tag = HeaderTag(place.group);
    const int data_tag = DataTag(place.group);
    const int64_t bytes = tensor.bytes();
    world.requests_[static_cast<size_t>(place.group)] += bytes > 0 ? 2 : 1;
    if (sends()) {
      transport.BeginMatchedSend(header_batch_, peer(), header_tag, &header, sizeof(header));
      if (bytes > 0) transport.BeginSend(data_batch_, peer(), data_tag, tensor.raw(), bytes);
    } else {
      transport.BeginReceive(header_batch_, peer(), header_tag, &header, sizeof(header));
      if (bytes > 0) transport.BeginReceive(data_batch_, peer(), data_tag, tensor.raw(), bytes);
    }
  }

  ~Message() override {
    if (done_) return;
    world_.transport_->Cancel(header_batch_);
    world_.transport_->Cancel(data_batch_);
    Keep(memory_);
  }

  void Wait() override {
    world_.ThrowIfFailed();
    world_.Await(header_batch_, place_, call_, peer());
    if (!sends()) world_.CheckFits(place_, call_, call_.peer, memory_->header);
    world_.Await(data_batch_, place_, call_);
    done_ = true;
  }

 private:
  /// What MPI reads and writes.
  struct Memory {
    CallHeader header{};  // the sender's
    Tensor tensor;
  };

  bool sends() const { return call_.kind == CollectiveKind::kSend; }
  int peer() const { return place_.members[static_cast<size_t>(call_.peer)]; }

  MpiWorld& world_;
  const Place place_;
  const CommCall call_;
  const std::shared_ptr<Memory> memory_;
  const int header_batch_;
  const int data_batch_;
  bool done_ = false;
};

std::unique_ptr<PendingMessage> MpiWorld::Submit(const Place& place, const CommCall& call,
                                                 const Tensor& tensor) {
  ThrowIfFailed();
  NoteCall();
  return std::make_unique<Message>(*this, place, call, tensor);
}

}  // namespace trimtab
