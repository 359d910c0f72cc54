// Errors of the CUDA libraries name the call, the place and the reason. Needs no GPU.
#include "engine/device/cuda/check.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"

namespace trimtab {
namespace {

template <typename Exception, typename Call>
std::string MessageOf(Call call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

cudaError_t Return(cudaError_t status) { return status; }

TEST(CudaCheck, LetsSuccessPass) {
  EXPECT_NO_THROW(TRIMTAB_CUDA_CHECK(cudaSuccess));
  EXPECT_NO_THROW(TRIMTAB_CUDA_CHECK(CUBLAS_STATUS_SUCCESS));
}

TEST(CudaCheck, NamesCallFileLineAndReason) {
  const int line = __LINE__ + 2;
  const std::string message =
      MessageOf<EnvironmentError>([] { TRIMTAB_CUDA_CHECK(Return(cudaErrorInvalidValue)); });
  EXPECT_EQ(message, fmt::format("{}:{}: Return(cudaErrorInvalidValue): invalid argument "
                                 "(cudaErrorInvalidValue)",
                                 __FILE__, line));
}

TEST(CudaCheck, NamesTheStatusOfCublas) {
  const std::string message =
      MessageOf<EnvironmentError>([] { TRIMTAB_CUDA_CHECK(CUBLAS_STATUS_NOT_SUPPORTED); });
  EXPECT_NE(message.find("CUBLAS_STATUS_NOT_SUPPORTED"), std::string::npos) << message;
}

TEST(CudaCheck, MemoryThatRunsOutIsItsOwnKind) {
  const std::string message =
      MessageOf<OutOfMemoryError>([] { TRIMTAB_CUDA_CHECK(Return(cudaErrorMemoryAllocation)); });
  EXPECT_NE(message.find("out of memory"), std::string::npos) << message;
}

}  // namespace
}  // namespace trimtab
