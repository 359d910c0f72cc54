#include "engine/ops/cpu/moe/router.h"

#include <algorithm>

#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"
#include "engine/ops/moe/router_row.h"

namespace trimtab {
namespace {

// The rows of one worker: see kernel.h.

TRIMTAB_CLONES void ChooseRows(int64_t rows, int64_t experts, const float* logits,
                               const float* bias, const RouterOptions& options, int32_t* choice) {
  for (int64_t row = 0; row < rows; ++row) {
    ChooseRow(logits + row * experts, bias, options, experts, choice + row * options.topk);
  }
}

TRIMTAB_CLONES void WeighRows(int64_t rows, int64_t experts, const float* logits,
                              const int32_t* choice, const RouterOptions& options, float* weights) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * options.topk;
    WeightsOfRow(logits + row * experts, choice + first, options, experts, weights + first);
  }
}

TRIMTAB_CLONES void WeighRowsBackward(int64_t rows, int64_t experts, const float* logits,
                                      const int32_t* choice, const float* dweights,
                                      const RouterOptions& options, float* dlogits) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * options.topk;
    WeightsOfRowBackward(logits + row * experts, choice + first, dweights + first, options, experts,
                         dlogits + row * experts);
  }
}

}  // namespace

void RouterChooseCpu(int threads, int64_t rows, int64_t experts, const float* logits,
                     const float* bias, const RouterOptions& options, int32_t* choice) {
  ParallelFor(threads, rows, RowGrain(experts), [&](int64_t begin, int64_t end) {
    ChooseRows(end - begin, experts, logits + begin * experts, bias, options,
               choice + begin * options.topk);
  });
}

void RouterChooseInTurnCpu(int threads, int64_t rows, int64_t experts, int64_t topk,
                           const RowPositions& positions, int32_t* choice) {
  ParallelFor(threads, rows, RowGrain(topk), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      ChooseRowInTurn(positions, row, experts, topk, choice + row * topk);
    }
  });
}

void RouterWeightsCpu(int threads, int64_t rows, int64_t experts, const float* logits,
                      const int32_t* choice, const RouterOptions& options, float* weights) {
  ParallelFor(threads, rows, RowGrain(experts), [&](int64_t begin, int64_t end) {
    WeighRows(end - begin, experts, logits + begin * experts, choice + begin * options.topk,
              options, weights + begin * options.topk);
  });
}

void RouterWeightsBackwardCpu(int threads, int64_t rows, int64_t experts, const float* logits,
                              const int32_t* choice, const float* dweights,
                              const RouterOptions& options, float* dlogits) {
  ParallelFor(threads, rows, RowGrain(experts), [&](int64_t begin, int64_t end) {
    WeighRowsBackward(end - begin, experts, logits + begin * experts, choice + begin * options.topk,
                      dweights + begin * options.topk, options, dlogits + begin * experts);
  });
}

void RouterLossBackwardCpu(int threads, int64_t rows, int64_t experts, int64_t run,
                           const float* logits, const float* load, const RouterLossOptions& options,
                           float scale, float* dlogits, float* losses) {
  ParallelFor(threads, rows, RowGrain(experts), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      LossOfRowBackward(logits + row * experts, load + row / run * experts, options, experts, scale,
                        dlogits + row * experts, losses + row, rows);
    }
  });
}

void CountChoicesCpu(int threads, int64_t runs, int64_t run_choices, int64_t experts,
                     const int32_t* choice, float* counts, bool accumulate) {
  ParallelFor(threads, runs, RowGrain(run_choices), [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      float* of_run = counts + run * experts;
      if (!accumulate) std::fill_n(of_run, experts, 0.0f);
      const int32_t* chosen = choice + run * run_choices;
      for (int64_t i = 0; i < run_choices; ++i) {
        if (chosen[i] >= 0) of_run[chosen[i]] += 1.0f;
      }
    }
  });
}

void UpdateExpertBiasCpu(int64_t experts, const float* counts, float rate, float* bias) {
  float total = 0;
  for (int64_t e = 0; e < experts; ++e) total += counts[e];
  for (int64_t e = 0; e < experts; ++e) {
    bias[e] += ExpertBiasStep(total, experts, counts[e], rate);
  }
}

}  // namespace trimtab
