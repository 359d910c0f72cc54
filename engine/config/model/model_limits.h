// Upper bounds of the sizes a file may ask for: far above any real model, and low enough that
// products of them (parameters, FLOPs of a layer) stay within 64 bits.
#pragma once

#include <cstdint>

namespace trimtab {

inline constexpr int64_t kMaxVocab = int64_t{1} << 26;
inline constexpr int64_t kMaxHidden = int64_t{1} << 20;
inline constexpr int64_t kMaxLayers = int64_t{1} << 14;
inline constexpr int64_t kMaxHeads = int64_t{1} << 16;
inline constexpr int64_t kMaxFfn = int64_t{1} << 22;
inline constexpr int64_t kMaxExperts = int64_t{1} << 14;
inline constexpr int64_t kMaxSequence = int64_t{1} << 27;
inline constexpr int64_t kMaxWorld = int64_t{1} << 20;         // ranks
inline constexpr int64_t kMaxBatch = int64_t{1} << 30;         // sequences
inline constexpr int64_t kMaxMicroBatches = int64_t{1} << 16;  // of a step

}  // namespace trimtab
