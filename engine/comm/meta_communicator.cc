// The communicator of a dry run: the base class has reported the message, and nothing moves.
#include "engine/comm/communicator.h"

namespace trimtab {
namespace {

class MetaCommunicator final : public Communicator {
 public:
  MetaCommunicator(GroupKind group, int rank, int size) : Communicator(group, rank, size) {}

 protected:
  void DoAllReduce(Tensor& buffer, ReduceOp) override { Check(buffer); }
  void DoReduceScatter(const Tensor& in, Tensor&) override { Check(in); }
  void DoAllGather(const Tensor& in, Tensor&) override { Check(in); }
  void DoBroadcast(Tensor& buffer, int) override { Check(buffer); }
  void DoAllToAll(const Tensor& in, std::span<const BufferPart>, Tensor&,
                  std::span<const BufferPart>) override {
    Check(in);
  }
  Pending DoSendAsync(const Tensor& tensor, int) override {
    Check(tensor);
    return nullptr;
  }
  Pending DoRecvAsync(Tensor& tensor, int) override {
    Check(tensor);
    return nullptr;
  }
  void DoBarrier() override { ThrowIfAborted(); }
  void DoAbort(const std::string& reason) override { aborted_ = reason; }

 private:
  // Real memory would be left as it was, which no caller can want.
  void Check(const Tensor& tensor) const {
    TRIMTAB_ASSERT(tensor.device().kind() == DeviceKind::kMeta,
                   "a meta communicator was given a tensor with real memory");
    ThrowIfAborted();
  }
  void ThrowIfAborted() const {
    if (!aborted_.empty()) throw CommError(aborted_);
  }

  std::string aborted_;
};

}  // namespace

std::unique_ptr<Communicator> MakeMetaCommunicator(GroupKind group, int rank, int size) {
  TRIMTAB_ASSERT(rank >= 0 && rank < size, "rank {} of a group of {}", rank, size);
  return std::make_unique<MetaCommunicator>(group, rank, size);
}

}  // namespace trimtab
