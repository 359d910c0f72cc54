// What a missing backend looks like. A test of its own, because a process asks only once; the BUILD
// file points $TRIMTAB_CUDA_BACKEND at a file that is not there.
#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"
#include "engine/device/cuda/loader.h"

namespace trimtab {
namespace {

TEST(CudaLoaderWithoutBackend, NamesTheMissingFile) {
  EXPECT_EQ(FindCudaDevices().device_count, 0);
  EXPECT_EQ(FindCudaDevices().reason, "no CUDA backend at /nonexistent/backend.so");
}

TEST(CudaLoaderWithoutBackend, MakesNoDevice) {
  try {
    MakeCudaDevice(0);
    FAIL() << "a device was made";
  } catch (const EnvironmentError& error) {
    EXPECT_EQ(error.code(), ExitCode::kEnvironment);
    EXPECT_STREQ(error.what(), "no CUDA device: no CUDA backend at /nonexistent/backend.so");
  }
}

}  // namespace
}  // namespace trimtab
