// CPU kernels of router.h.
#pragma once

#include <cstdint>

#include "engine/ops/moe/router.h"

namespace trimtab {

void RouterChooseCpu(int threads, int64_t rows, int64_t experts, const float* logits,
                     const float* bias, const RouterOptions& options, int32_t* choice);
void RouterChooseInTurnCpu(int threads, int64_t rows, int64_t experts, int64_t topk,
                           const RowPositions& positions, int32_t* choice);
void RouterWeightsCpu(int threads, int64_t rows, int64_t experts, const float* logits,
                      const int32_t* choice, const RouterOptions& options, float* weights);
void RouterWeightsBackwardCpu(int threads, int64_t rows, int64_t experts, const float* logits,
                              const int32_t* choice, const float* dweights,
                              const RouterOptions& options, float* dlogits);
/// `run`: rows of a sequence.
void RouterLossBackwardCpu(int threads, int64_t rows, int64_t experts, int64_t run,
                           const float* logits, const float* load, const RouterLossOptions& options,
                           float scale, float* dlogits, float* losses);
void CountChoicesCpu(int threads, int64_t runs, int64_t run_choices, int64_t experts,
                     const int32_t* choice, float* counts, bool accumulate);
void UpdateExpertBiasCpu(int64_t experts, const float* counts, float rate, float* bias);

}  // namespace trimtab
