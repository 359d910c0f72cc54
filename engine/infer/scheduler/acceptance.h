// Whether proposed tokens stand, where texts are not real: in simulations, and under a load of
// random prompts.
#pragma once

#include <cstdint>

namespace trimtab {

/// Whether the token at `position` of a text stands where it was proposed. Each does with
/// probability `acceptance`, whatever became of the others: the model of Leviathan et al.
/// (arXiv:2211.17192, section 3.1), by which a step with n proposed tokens brings
/// (1 - acceptance^(n + 1)) / (1 - acceptance) tokens in the mean. A function of its arguments, as
/// choices of tokens are: neither steps nor the batch around a sequence change it.
bool IsAccepted(double acceptance, uint64_t seed, int64_t position);

/// Of tokens that were checked in their turn, the share that stood: the likeliest acceptance. 0
/// where none was.
double AcceptanceOf(int64_t checked, int64_t accepted);

}  // namespace trimtab
