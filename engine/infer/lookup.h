// Speculation by n-gram look-up (Saxena, prompt-lookup-decoding, 2023): what followed the last
// tokens when they stood in the text before is proposed to follow again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trimtab {

/// Up to `most` tokens that followed the latest earlier place of the last tokens of `history`: of
/// the last three, or where these occur nowhere else, the last two.
std::vector<int32_t> LookUpContinuation(std::span<const int32_t> history, int64_t most);

}  // namespace trimtab
