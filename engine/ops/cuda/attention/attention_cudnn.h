// Attention by cuDNN's fused kernels. Where cuDNN was not installed when the project was built, and
// on the emulated device, attention_no_cudnn.cc stands in, which always refuses.
#pragma once

#include <string>

#include "engine/ops/cuda/attention/attention_kernels.h"

namespace trimtab {

/// Why cuDNN does not run this pass of `shape` on `device`, in one line; empty when it does. The
/// first call for a shape builds its plan (up to a second) and logs what came of it; later calls
/// look it up.
const std::string& CudnnAttentionRefusal(Device& device, AttentionPass pass,
                                         const AttentionShape& shape, DType dtype);

/// For calls that cuDNN does not refuse. Nothing is allocated, so they can be captured.
void AttentionForwardCudnn(Device& device, const AttentionForwardCall& call);
void AttentionBackwardCudnn(Device& device, const AttentionBackwardCall& call);

}  // namespace trimtab
