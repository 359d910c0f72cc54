// Sampler: the next token from a row of logits.
#pragma once

#include <cstdint>
#include <span>

#include "engine/infer/api/request.h"

namespace trimtab {

/// Restricts the next token beyond SamplingOptions.
struct TokenRules {
  const GenerationRequest* request = nullptr;  // its limits on tokens; null: none. Not owned.
  int64_t prompt_tokens = 0;                   // the history's first ones; the rest is the answer
  std::span<const uint64_t> mask{};            // bit i % 64 of word i / 64: token i may follow;
                                               // empty: any may
};

/// Chooses the token that follows `history`, the prompt and what was generated so far.
///
/// Logits change first, in this order, which is vLLM's: tokens outside the request's allowed tokens
/// and the mask go, then those that would end a banned sequence of the answer, then stop tokens
/// before the answer has min_tokens; the logit bias is added; the repetition penalty applies to
/// tokens of the whole history (a logit above 0 is divided by it, one below multiplied;
/// arXiv:1909.05858), the frequency and presence penalties to those of the answer.
/// With a temperature of 0 the likeliest token is chosen, the first of several. Else one is drawn,
/// after the division by the temperature, top_k, top_p of what top_k leaves (the fewest tokens that
/// together reach it), min_p. Of equally likely tokens the one of the lower id is first. Log
/// probabilities are the model's, before all of this.
///
/// A function of its arguments alone: the draw's random number comes from the seed and the length
/// of the history, so neither the batch around a sequence nor a restart changes its tokens.
/// `logits` is [V], the used columns only; ids of `history` are below V. Throws InputError when the
/// logits are not numbers, or when no token may follow.
SampledToken SampleToken(std::span<const float> logits, std::span<const int32_t> history,
                         const SamplingOptions& options, const TokenRules& rules = {});

/// Returns `token` with its log probability under `logits` [V], and `likeliest` of the likeliest
/// tokens. Throws InputError when the logits are not numbers; `position` is the token's, for the
/// message.
SampledToken ScoreToken(std::span<const float> logits, int32_t token, int64_t likeliest,
                        int64_t position);

}  // namespace trimtab
