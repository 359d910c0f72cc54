// What a rank's micro batch is read from a token source as.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data/dataset/token_source.h"
#include "engine/ops/attention/row_layout.h"

namespace trimtab {

/// The target of a token that has none: it adds nothing to the loss (cross_entropy.h).
inline constexpr int32_t kNoTarget = -1;

/// Ids by row of a layout.
struct MicroBatchIds {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;    // the ids to predict, or kNoTarget
  std::vector<int32_t> positions;  // in documents; empty where these are not masked
};

/// Reads layout.batch samples of `length` + 1 tokens, from sample `first_sample` on, and returns
/// what the rows of `layout` have of them. Where documents are masked, the last token of a document
/// has no target: the token after it is of another one.
MicroBatchIds ReadMicroBatch(const TokenSource& source, int64_t first_sample, int64_t length,
                             const RowLayout& layout, bool masks_documents);

/// Returns how many tokens of `samples` samples of `length` tokens have a target, but at least 1.
int64_t CountTargets(const TokenSource& source, int64_t first_sample, int64_t samples,
                     int64_t length, bool masks_documents);

}  // namespace trimtab
