// What versions of NCCL can do. Needs no NCCL.
#pragma once

#include <cstdint>

namespace trimtab {

/// 2.19, in NCCL's own coding: the oldest that is taken, with ncclCommSplit's configuration.
inline constexpr int64_t kOldestNccl = 21900;

/// Whether a NCCL of this version (22602 is 2.26.2) keeps kernels of several communicators in the
/// order in which they were launched, on whatever streams: from 2.26 on, by
/// NCCL_LAUNCH_ORDER_IMPLICIT. Ranks that start them in different orders can wait for one another
/// for ever.
constexpr bool NcclKeepsLaunchOrder(int64_t version) { return version >= 22600; }

}  // namespace trimtab
