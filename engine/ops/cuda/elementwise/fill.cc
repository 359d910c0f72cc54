#include "engine/ops/cuda/elementwise/fill.h"

namespace trimtab {

void FillCudaOps(CudaOps& ops) {
  FillGemmOps(ops);
  FillElementwiseOps(ops);
  FillEmbeddingOps(ops);
  FillCrossEntropyOps(ops);
  FillReductionOps(ops);
  FillClipOps(ops);
  FillNormOps(ops);
  FillNormBackwardFp8Ops(ops);
  FillHeadNormOps(ops);
  FillWholeNormOps(ops);
  FillActivationOps(ops);
  FillRopeOps(ops);
  FillRopeFp8Ops(ops);
  FillLatentHeadsOps(ops);
  FillAttentionSinkOps(ops);
  FillAdamWOps(ops);
  FillMomentumOps(ops);
  FillNewtonSchulzOps(ops);
  FillQuantizeOps(ops);
  FillNormFp8Ops(ops);
  FillActivationFp8Ops(ops);
  FillBiasOps(ops);
  FillAttentionOps(ops);
  FillRouterOps(ops);
  FillSequenceRoutingOps(ops);
  FillPermuteOps(ops);
  FillGateRowsOps(ops);
  FillPagedAttentionOps(ops);
  FillPackedGemmOps(ops);
}

}  // namespace trimtab
