// CPU kernels of attention_sink.h.
#pragma once

#include "engine/ops/attention/attention_sink.h"

namespace trimtab {

void AttentionSinkCpu(int threads, const AttentionShape& shape, const float* sinks, float* out,
                      float* log_sum_exp);
void AttentionSinkBackwardCpu(int threads, const AttentionShape& shape, const float* sinks,
                              const float* out, const float* log_sum_exp, const float* dout,
                              float* dsinks, bool accumulate);

}  // namespace trimtab
