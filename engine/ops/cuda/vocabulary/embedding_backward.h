// The backward pass of token embeddings, as an entry of CudaOps.
#pragma once

#include "engine/device/tensor.h"

namespace trimtab {

void EmbeddingBackwardCuda(const Tensor& tokens, const Tensor& dout, int64_t vocab_start,
                           Tensor& dtable);

}  // namespace trimtab
