#include "engine/base/dtype.h"

#include <gtest/gtest.h>

#include "engine/base/float8.h"

namespace trimtab {
namespace {

TEST(DType, SizesAndNames) {
  const std::pair<DType, std::pair<int64_t, const char*>> cases[] = {
      {DType::kF32, {4, "fp32"}},        {DType::kBf16, {2, "bf16"}},
      {DType::kF16, {2, "fp16"}},        {DType::kI32, {4, "int32"}},
      {DType::kI64, {8, "int64"}},       {DType::kF8E4M3, {1, "fp8_e4m3"}},
      {DType::kF8E5M2, {1, "fp8_e5m2"}}, {DType::kU16, {2, "uint16"}}};
  for (const auto& [dtype, expected] : cases) {
    EXPECT_EQ(SizeOf(dtype), expected.first);
    EXPECT_EQ(Name(dtype), expected.second);
    EXPECT_EQ(IsFp8(dtype), expected.first == 1);
  }
}

TEST(DType, PlainFloatsAreWhatActivationsAreStoredIn) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16})
    EXPECT_TRUE(IsPlainFloat(dtype));
  for (const DType dtype :
       {DType::kI32, DType::kI64, DType::kF8E4M3, DType::kF8E5M2, DType::kU16}) {
    EXPECT_FALSE(IsPlainFloat(dtype)) << Name(dtype);
  }
}

TEST(DType, TheLargestFp8ValuesAreTheFormats) {
  EXPECT_EQ(Fp8Max(DType::kF8E4M3), E4M3ToFloat(0x7e));
  EXPECT_EQ(Fp8Max(DType::kF8E5M2), E5M2ToFloat(0x7b));
}

}  // namespace
}  // namespace trimtab
