// What the FLOP rates of published runs count, and the token rates that they stand for.
#pragma once

#include <vector>

#include "cost_model/validation/published_run.h"

namespace trimtab {

/// FLOPs of one token, by the convention of the row but for attention (Korthikanti et al.,
/// arXiv:2205.05198, appendix A): 6 per weight that multiplies it, attention's two products, of the
/// whole square or its causal half, and with `hardware` the layers that run again.
double FlopsPerToken(const PublishedRun& run, bool causal_attention, bool hardware);

/// Sets how attention is counted where a row does not tell it and others of its source say it
/// themselves: those with both a FLOP rate and a time, by which of the two conventions agrees.
void FindAttentionConventions(std::vector<PublishedRun>& runs);

}  // namespace trimtab
