#include "engine/ops/cuda/cudnn/cudnn_limits.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

constexpr int64_t kNew = 91900;

TEST(CudnnLimits, VersionsWithWrongAttentionAreRefused) {
  for (const int64_t version : {int64_t{90800}, int64_t{91000}, int64_t{91001}}) {
    EXPECT_NE(CudnnVersionRefusal(version), "") << version;
  }
  EXPECT_EQ(CudnnVersionRefusal(91001), "cuDNN is version 9.10.1, needs 9.10.2 or newer");
  EXPECT_EQ(CudnnVersionRefusal(91002), "");
  EXPECT_EQ(CudnnVersionRefusal(kNew), "");
}

TEST(CudnnLimits, OneTokenHasNoBackwardPass) {
  EXPECT_NE(CudnnBackwardRefusal(kNew, 1), "");
  EXPECT_EQ(CudnnBackwardRefusal(kNew, 2), "");
}

TEST(CudnnLimits, OlderVersionsNeedWholeTilesBackward) {
  EXPECT_EQ(CudnnBackwardRefusal(kOldestCudnn, 1024), "");
  EXPECT_NE(CudnnBackwardRefusal(kOldestCudnn, 1000), "");
  EXPECT_NE(CudnnBackwardRefusal(91500, 1000), "");
  EXPECT_EQ(CudnnBackwardRefusal(91600, 1000), "");
}

}  // namespace
}  // namespace trimtab
