#include "engine/base/error.h"
#include "engine/ops/cuda/attention/attention_cudnn.h"

namespace trimtab {

const std::string& CudnnAttentionRefusal(Device& /*device*/, AttentionPass /*pass*/,
                                         const AttentionShape& /*shape*/, DType /*dtype*/) {
  static const std::string kRefusal = "built without cuDNN";
  return kRefusal;
}

void AttentionForwardCudnn(Device& /*device*/, const AttentionForwardCall& /*call*/) {
  TRIMTAB_ASSERT(false, "attention forward: built without cuDNN");
}

void AttentionBackwardCudnn(Device& /*device*/, const AttentionBackwardCall& /*call*/) {
  TRIMTAB_ASSERT(false, "attention backward: built without cuDNN");
}

}  // namespace trimtab
