// The CUDA kernels by family, as they enter the table of a cuda device. Each file fills its own
// entries; what no file fills stays null, and the op refuses by name.
#pragma once

#include "engine/ops/cuda_ops.h"

namespace trimtab {

void FillElementwiseOps(CudaOps& ops);
void FillEmbeddingOps(CudaOps& ops);
void FillCrossEntropyOps(CudaOps& ops);
void FillReductionOps(CudaOps& ops);
void FillClipOps(CudaOps& ops);
void FillNormOps(CudaOps& ops);
void FillNormBackwardFp8Ops(CudaOps& ops);
void FillHeadNormOps(CudaOps& ops);
void FillWholeNormOps(CudaOps& ops);
void FillActivationOps(CudaOps& ops);
void FillRopeOps(CudaOps& ops);
void FillRopeFp8Ops(CudaOps& ops);
void FillLatentHeadsOps(CudaOps& ops);
void FillAttentionSinkOps(CudaOps& ops);
void FillAdamWOps(CudaOps& ops);
void FillMomentumOps(CudaOps& ops);
void FillNewtonSchulzOps(CudaOps& ops);
void FillQuantizeOps(CudaOps& ops);
void FillNormFp8Ops(CudaOps& ops);
void FillActivationFp8Ops(CudaOps& ops);
void FillBiasOps(CudaOps& ops);
void FillAttentionOps(CudaOps& ops);
void FillGemmOps(CudaOps& ops);
void FillRouterOps(CudaOps& ops);
void FillSequenceRoutingOps(CudaOps& ops);
void FillPermuteOps(CudaOps& ops);
void FillGateRowsOps(CudaOps& ops);
void FillPagedAttentionOps(CudaOps& ops);
void FillPackedGemmOps(CudaOps& ops);

/// All of the above.
void FillCudaOps(CudaOps& ops);

}  // namespace trimtab
