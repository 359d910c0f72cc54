// The communicator of ranks that are processes with a GPU each, over NCCL.
#pragma once

#include "engine/comm/cuda_comm.h"
#include "engine/device/cuda/watched_wait.h"

namespace trimtab {

/// See CudaComm. Built without NCCL, both throw EnvironmentError.
NcclId MakeNcclId();

/// Synchronous calls are part of the device's stream, so they order themselves and can be captured.
/// Asynchronous ones go to the device's stream for messages, ahead of the ops beside them, and
/// waiting joins it; those of a tensor group, which are waited for within a layer, to a stream of
/// the group's own. Messages between neighbours of a pipeline or context group have streams of
/// their own (nccl_links.h); those of other groups are done one after the other, in order of
/// submission. NCCL picks the order of additions, the same in every run on the same machine, and
/// adds 16-bit floats in their own precision; the maximum of a NaN and a number may be either.
/// NCCL's own communicators are made at the first call, which may not be in a capture.
std::unique_ptr<Communicator> MakeNcclCommunicator(Device& device, GroupKind group, int rank,
                                                   int size, ShareNcclId share_id);

/// `watch`, which also ends waits of the device where one of its rank's communicators has failed.
std::unique_ptr<WaitWatch> WatchNccl(Device& device, std::unique_ptr<WaitWatch> watch);

}  // namespace trimtab
