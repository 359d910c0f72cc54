#include "engine/comm/inproc/inproc_memory.h"

#include <algorithm>
#include <cstring>

#include "engine/comm/inproc/reduce_kernels.h"

namespace trimtab {

void InprocMemory::Use(Device& device, InprocCall& call) {
  TRIMTAB_ASSERT(device.kind() != DeviceKind::kMeta,
                 "the in-process communicator moves real memory only");
  device_ = &device;
  call.device = &device;
  call.device_kind = device.kind();
  if (!on_stream()) return;
  if (marked_device_ == nullptr) {
    const CudaComm& comm = CudaCommOf(device);
    ready_ = comm.make_mark(device);
    done_ = comm.make_mark(device);
    marked_device_ = &device;
  }
  TRIMTAB_ASSERT(marked_device_ == &device, "a rank has one cuda device, this one got two");
  call.ready = ready_;
  call.done = done_;
}

void InprocMemory::SetReady() {
  if (on_stream()) ready_->Set();
}

void InprocMemory::AwaitReady(const InprocGroup& group, int rank) {
  if (!on_stream()) return;
  peers_done_.clear();
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == rank) continue;
    AwaitReady(group.call(rank, peer));
    // Noted now: once all have finished, the peer may already be making its next call.
    peers_done_.push_back(group.call(rank, peer).done);
  }
}

void InprocMemory::AwaitReady(const InprocCall& peer) {
  if (!on_stream()) return;
  if (std::find(connected_.begin(), connected_.end(), peer.device) == connected_.end()) {
    CudaCommOf(*device_).connect(*device_, *peer.device);
    connected_.push_back(peer.device);
  }
  peer.ready->Await(*device_);
}

void InprocMemory::SetDone() {
  if (on_stream()) done_->Set();
}

void InprocMemory::AwaitDone() {
  if (!on_stream()) return;
  for (const auto& done : peers_done_) done->Await(*device_);
}

std::shared_ptr<StreamMark> InprocMemory::SetMark() const {
  if (!on_stream()) return nullptr;
  std::shared_ptr<StreamMark> mark = CudaCommOf(*device_).make_mark(*device_);
  mark->Set();
  return mark;
}

void InprocMemory::Copy(const void* from, int64_t from_offset, Tensor& to, int64_t to_offset,
                        int64_t count) {
  const int64_t size = SizeOf(to.dtype());
  Copy(static_cast<const char*>(from) + from_offset * size,
       static_cast<char*>(to.raw()) + to_offset * size, count * size);
}

void InprocMemory::Copy(const void* from, void* to, int64_t bytes) {
  if (bytes == 0 || from == to) return;
  if (on_stream()) return CudaCommOf(*device_).copy(*device_, from, to, bytes);
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void InprocMemory::Reduce(const Tensor& like, ReduceOp op, std::span<const void* const> sources,
                          std::span<void* const> targets, int64_t begin, int64_t end,
                          int64_t shift) {
  if (begin == end) return;
  if (on_stream()) {
    return CudaCommOf(*device_).reduce(*device_, like.dtype(), op, sources, targets, begin, end,
                                       shift);
  }
  ReduceRange(like.dtype(), op, sources, targets, begin, end, shift);
}

}  // namespace trimtab
