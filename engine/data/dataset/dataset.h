// Dataset: training samples from an indexed dataset on disk.
//
// The documents are read as one long run of tokens, cut into windows of T+1 tokens at a stride of T
// (every token but the first is a target exactly once). Each epoch visits all windows in an order
// of its own, computed from the seed without being stored.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/data/dataset/token_source.h"

namespace trimtab {

/// Samples of `sequence_length` + 1 tokens from PREFIX.bin and PREFIX.idx, shuffled by `seed`.
/// Throws InputError when the files are missing or damaged, or hold fewer tokens than one sample.
std::unique_ptr<TokenSource> OpenDataset(const std::string& prefix, int64_t sequence_length,
                                         uint64_t seed);

}  // namespace trimtab
