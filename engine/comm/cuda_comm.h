// The seam to the CUDA backend: what communicators need of a cuda device, as a table of functions
// that the backend's devices carry.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/comm/communicator.h"

namespace trimtab {

/// A point in the stream of the device it was made for. May outlive that device, but then only be
/// awaited.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
  /// Moves the mark behind everything submitted so far.
  virtual void Set() = 0;
  /// Lets what is submitted to `waiter` from now on wait for the mark as it is set now. May be
  /// called from any thread that no other uses `waiter` in.
  virtual void Await(Device& waiter) const = 0;
};

/// What the ranks of a NCCL group must share before they can meet.
using NcclId = std::array<char, 128>;

/// Returns the same id on all ranks of a group; all of them call it.
using ShareNcclId = std::function<NcclId()>;

/// Largest number of in-process ranks whose buffers one kernel takes.
inline constexpr int kMaxCudaInprocRanks = 64;

struct CudaComm {
  std::unique_ptr<StreamMark> (*make_mark)(Device& device) = nullptr;
  /// Lets `reader` use memory of `owner`. Throws EnvironmentError when the machine cannot.
  void (*connect)(Device& reader, Device& owner) = nullptr;
  /// Copies device memory in the order of `device`'s stream.
  void (*copy)(Device& device, const void* from, void* to, int64_t bytes) = nullptr;
  /// ReduceRange (reduce_kernels.h) on the device, to the same bits.
  void (*reduce)(Device& device, DType dtype, ReduceOp op, std::span<const void* const> sources,
                 std::span<void* const> targets, int64_t begin, int64_t end,
                 int64_t shift) = nullptr;

  /// Both throw EnvironmentError where the backend was built without NCCL, CommError when NCCL
  /// fails. The ranks of the group meet at the first use of what make_nccl returns, with the id
  /// that one of them made.
  NcclId (*make_nccl_id)() = nullptr;
  std::unique_ptr<Communicator> (*make_nccl)(Device& device, GroupKind group, int rank, int size,
                                             ShareNcclId share_id) = nullptr;
};

/// The table of a cuda device. Throws EnvironmentError where there is none.
const CudaComm& CudaCommOf(const Device& device);

}  // namespace trimtab
