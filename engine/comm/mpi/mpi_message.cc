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
  Message(MpiWorld& world, const Place& place, const CommCall& call, void* data, int64_t bytes)
      : world_(world),
        place_(place),
        call_(call),
        header_(
            MakeCallHeader(place.group, static_cast<int>(place.members.size()), place.rank, call)),
        header_batch_(world.transport_->NewBatch()),
        data_batch_(world.transport_->NewBatch()) {
    MpiTransport& transport = *world.transport_;
    const int peer = place.members[static_cast<size_t>(call.peer)];
    if (sends()) {
      transport.BeginMatchedSend(header_batch_, peer, HeaderTag(place.group), &header_,
                                 sizeof(header_));
      if (bytes > 0) transport.BeginSend(data_batch_, peer, DataTag(place.group), data, bytes);
    } else {
      transport.BeginReceive(header_batch_, peer, HeaderTag(place.group), &header_,
                             sizeof(header_));
      if (bytes > 0) transport.BeginReceive(data_batch_, peer, DataTag(place.group), data, bytes);
    }
  }

  ~Message() override {
    if (done_) return;
    world_.transport_->Cancel(header_batch_);
    world_.transport_->Cancel(data_batch_);
  }

  void Wait() override {
    world_.ThrowIfFailed();
    world_.Await(header_batch_, place_, call_, place_.members[static_cast<size_t>(call_.peer)]);
    if (!sends()) world_.CheckFits(place_, call_, call_.peer, header_);
    world_.Await(data_batch_, place_, call_);
    done_ = true;
  }

 private:
  bool sends() const { return call_.kind == CollectiveKind::kSend; }

  MpiWorld& world_;
  const Place place_;
  const CommCall call_;
  CallHeader header_;  // the sender's
  const int header_batch_;
  const int data_batch_;
  bool done_ = false;
};

std::unique_ptr<PendingMessage> MpiWorld::Submit(const Place& place, const CommCall& call,
                                                 void* data, int64_t bytes) {
  ThrowIfFailed();
  return std::make_unique<Message>(*this, place, call, data, bytes);
}

}  // namespace trimtab
