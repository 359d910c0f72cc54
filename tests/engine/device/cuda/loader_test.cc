// The loader's answer on whatever machine the tests run on: devices, or one clear reason.
#include "engine/device/cuda/loader.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"

namespace trimtab {
namespace {

TEST(CudaLoader, FindsDevicesOrSaysWhyNotInOneLine) {
  const CudaAvailability& found = FindCudaDevices();
  EXPECT_EQ(found.device_count == 0, !found.reason.empty());
  EXPECT_EQ(found.reason.find('\n'), std::string::npos) << found.reason;
}

TEST(CudaLoader, GivesTheSameAnswerTwice) {
  const CudaAvailability& first = FindCudaDevices();
  EXPECT_EQ(&first, &FindCudaDevices());
}

TEST(CudaLoader, BackendThatIsBuiltAlsoLoads) {
  // A broken link of the shared object must not pass for a machine without GPUs.
  EXPECT_EQ(FindCudaDevices().reason.find("cannot load"), std::string::npos)
      << FindCudaDevices().reason;
  EXPECT_EQ(FindCudaDevices().reason.find("not a CUDA backend"), std::string::npos);
}

TEST(CudaLoader, RefusesDevicesThatAreNotThere) {
  for (const int ordinal : {-1, FindCudaDevices().device_count}) {
    try {
      MakeCudaDevice(ordinal);
      FAIL() << "device " << ordinal << " was made";
    } catch (const EnvironmentError& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.find("no CUDA device"), 0u) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace trimtab
