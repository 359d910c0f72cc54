// Which versions of cuDNN the project takes, and what it asks of none of them. Needs no cuDNN.
#pragma once

#include <cstdint>
#include <string>

namespace trimtab {

/// 9.10.2, in cuDNN's own coding. Before 9.10 the engines want other graphs (their masks are no
/// infinities), and 9.10.0 and 9.10.1 give wrong attention: others refuse them too.
inline constexpr int64_t kOldestCudnn = 91002;

/// "9.10.2".
std::string CudnnVersionName(int64_t version);

/// Why a cuDNN of this version is not used, in one line; empty when it is.
std::string CudnnVersionRefusal(int64_t version);

/// Why the backward pass of sequences of `sequence` tokens is not asked of a cuDNN of this version;
/// empty when it is. From what cudnn-frontend refuses, or pads.
std::string CudnnBackwardRefusal(int64_t version, int64_t sequence);

}  // namespace trimtab
