#include "engine/base/dtype.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

TEST(DType, SizesAndNames) {
  const std::pair<DType, std::pair<int64_t, const char*>> cases[] = {{DType::kF32, {4, "fp32"}},
                                                                     {DType::kBf16, {2, "bf16"}},
                                                                     {DType::kF16, {2, "fp16"}},
                                                                     {DType::kI32, {4, "int32"}},
                                                                     {DType::kI64, {8, "int64"}}};
  for (const auto& [dtype, expected] : cases) {
    EXPECT_EQ(SizeOf(dtype), expected.first);
    EXPECT_EQ(Name(dtype), expected.second);
  }
}

}  // namespace
}  // namespace trimtab
