// Sampler: the next token from a row of logits.
#pragma once

#include <cstdint>
#include <span>

#include "engine/infer/request.h"

namespace trimtab {

/// Chooses the token that follows `history`, the prompt and what was generated so far.
///
/// With a temperature of 0 it is the likeliest token, the first of several. Else one is drawn.
/// In this order: the repetition penalty (a logit above 0 is divided by it, one below multiplied;
/// arXiv:1909.05858), the division by the temperature, top_k, top_p of what top_k leaves (the
/// fewest tokens that together reach it), min_p. Of equally likely tokens the one of the lower id
/// is first.
///
/// A function of its arguments alone: the draw's random number comes from the seed and the length
/// of the history, so neither the batch around a sequence nor a restart changes its tokens.
/// `logits` is [V], the used columns only; ids of `history` are below V. Throws InputError when the
/// logits are not numbers.
SampledToken SampleToken(std::span<const float> logits, std::span<const int32_t> history,
                         const SamplingOptions& options);

}  // namespace trimtab
