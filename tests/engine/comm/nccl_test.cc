// What can be said of NCCL without a GPU, and a group of one rank with one. mpi_test runs two.
#include <gtest/gtest.h>

#include "engine/comm/cuda/nccl_check.h"
#include "engine/comm/cuda/nccl_communicator.h"
#include "engine/comm/cuda/table.h"
#include "engine/device/cuda/cuda_device.h"

namespace trimtab {
namespace {

TEST(Nccl, IsTheLibraryItWasBuiltWith) {
  int version = 0;
  ASSERT_EQ(NcclUnavailable(), "");
  ASSERT_EQ(Nccl().get_version(&version), ncclSuccess);
  EXPECT_GE(version, NCCL_VERSION_CODE);
}

TEST(Nccl, MessagesNameTheCallAndTheReason) {
  const std::string message = NcclMessage(Nccl(), "ncclSend of rank 1", ncclInvalidUsage, nullptr);
  EXPECT_EQ(message.find("ncclSend of rank 1: invalid usage"), 0u) << message;
}

TEST(Nccl, EveryIdIsAnother) {
  setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/0);  // a machine may have no other interface
  NcclId first{};
  try {
    first = MakeNcclId();
  } catch (const CommError& error) {
    // Some versions of NCCL ask the driver first.
    ASSERT_EQ(FindDevicesOfDriver().device_count, 0) << error.what();
    EXPECT_EQ(std::string(error.what()).find("ncclGetUniqueId: "), 0u) << error.what();
    return;
  }
  EXPECT_NE(first, NcclId{});
  EXPECT_NE(first, MakeNcclId());
}

class NcclOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    const CudaAvailability found = FindDevicesOfDriver();
    if (found.device_count == 0) GTEST_SKIP() << "no CUDA device: " << found.reason;
    device_ = std::make_unique<CudaDevice>(CudaDeviceOptions{});
    device_->set_cuda_comm(&CudaCommTable());
  }
  std::unique_ptr<CudaDevice> device_;
};

TEST_F(NcclOnGpu, GroupOfOneRankStartsAndEnds) {
  const auto comm = MakeNcclCommunicator(*device_, GroupKind::kData, 0, 1, MakeNcclId);
  EXPECT_EQ(comm->size(), 1);
  EXPECT_TRUE(comm->CanCapture());
  comm->Barrier();
}

// What later calls say: nccl_groups_test. Here the library must neither crash nor hang.
TEST_F(NcclOnGpu, BearsTwoAborts) {
  const auto comm = MakeNcclCommunicator(*device_, GroupKind::kData, 0, 1, MakeNcclId);
  comm->Abort("gone");
  comm->Abort("again");
}

TEST_F(NcclOnGpu, RankOutsideItsGroupIsRefusedByName) {
  try {
    MakeNcclCommunicator(*device_, GroupKind::kData, 3, 2, MakeNcclId)->Barrier();
    FAIL() << "a communicator was made";
  } catch (const CommError& error) {
    EXPECT_EQ(std::string(error.what()).find("ncclCommInitRankConfig of rank 3 in the dp group"),
              0u)
        << error.what();
  }
}

}  // namespace
}  // namespace trimtab
