#include "engine/ops/cuda/cudnn/cudnn_limits.h"

#include <fmt/format.h>

namespace trimtab {

std::string CudnnVersionName(int64_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string CudnnVersionRefusal(int64_t version) {
  if (version >= kOldestCudnn) return "";
  return fmt::format("cuDNN is version {}, needs {} or newer", CudnnVersionName(version),
                     CudnnVersionName(kOldestCudnn));
}

std::string CudnnBackwardRefusal(int64_t version, int64_t sequence) {
  if (sequence == 1) return "cuDNN has no backward pass for sequences of one token";
  constexpr int64_t kTakesAnySequence = 91600;
  if (sequence % 128 != 0 && version < kTakesAnySequence) {
    return "cuDNN before 9.16 needs sequences of a multiple of 128 tokens";
  }
  return "";
}

}  // namespace trimtab
