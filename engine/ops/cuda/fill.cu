#include "engine/ops/cuda/fill.h"

namespace trimtab {

void FillCudaOps(CudaOps& ops) {
  FillGemmOps(ops);
  FillElementwiseOps(ops);
  FillEmbeddingOps(ops);
  FillCrossEntropyOps(ops);
  FillReductionOps(ops);
  FillClipOps(ops);
}

}  // namespace trimtab
