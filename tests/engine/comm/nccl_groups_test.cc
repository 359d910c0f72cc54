// The communicators of a rank, over a NCCL whose kernels end as a test wants.
#include "engine/comm/cuda/nccl_groups.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/cuda/nccl_streams.h"

namespace trimtab {
namespace {

// Handles of communicators are only compared, never looked into.
ncclComm_t Comm(uintptr_t number) { return reinterpret_cast<ncclComm_t>(number); }
const ncclComm_t kFront = Comm(1);   // its kernel runs
const ncclComm_t kBehind = Comm(2);  // its kernel stands behind that of kFront in a stream

struct Simulation {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<ncclComm_t> told;  // to abort
  std::vector<ncclComm_t> aborted;
  std::vector<ncclComm_t> destroyed;
  std::set<ncclComm_t> failed;
  bool in_time = true;
};
Simulation* simulation = nullptr;

/// Returns when the kernel of `comm` has ended: that of kBehind after that of kFront.
ncclResult_t Abort(ncclComm_t comm) {
  std::unique_lock lock(simulation->mutex);
  simulation->told.insert(comm);
  simulation->changed.notify_all();
  const auto ended = [comm] { return comm != kBehind || simulation->told.contains(kFront); };
  simulation->in_time &= simulation->changed.wait_for(lock, std::chrono::seconds(5), ended);
  simulation->aborted.push_back(comm);
  return ncclSuccess;
}

ncclResult_t Destroy(ncclComm_t comm) {
  simulation->destroyed.push_back(comm);
  return ncclSuccess;
}

ncclResult_t AsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = simulation->failed.contains(comm) ? ncclRemoteError : ncclInProgress;
  return ncclSuccess;
}

const char* ErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "a peer is gone" : "another error";
}
const char* LastError(ncclComm_t) { return "connection reset"; }

const NcclLibrary kSimulated = {.get_error_string = ErrorString,
                                .get_last_error = LastError,
                                .comm_abort = Abort,
                                .comm_destroy = Destroy,
                                .comm_get_async_error = AsyncError};

class NcclGroupsTest : public testing::Test {
 protected:
  NcclGroupsTest() { simulation = &simulation_; }

  Simulation simulation_;
  NcclGroups groups_{kSimulated};
};

TEST_F(NcclGroupsTest, NoAbortWaitsForAKernelOfAnother) {
  groups_.Add(kBehind, "the tp group of 2");
  groups_.Add(kFront, "the dp group of 2");
  groups_.AbortAll("rank 1 failed");
  EXPECT_TRUE(simulation_.in_time);
  EXPECT_EQ(simulation_.aborted.size(), 2u);
  groups_.AbortAll("again");
  EXPECT_EQ(simulation_.aborted.size(), 2u);
}

TEST_F(NcclGroupsTest, AllFailWhenOneDoes) {
  groups_.Add(kFront, "the dp group of 2");
  groups_.Add(kBehind, "the tp group of 2");
  EXPECT_NO_THROW(groups_.ThrowIfFailed());
  EXPECT_EQ(groups_.Call(kFront, [] { return ncclSuccess; }), ncclSuccess);
  simulation_.failed.insert(kBehind);
  try {
    groups_.ThrowIfFailed();
    FAIL() << "a failure went unnoticed";
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(), "the tp group of 2: a peer is gone: connection reset");
  }
  bool called = false;
  EXPECT_EQ(groups_.Call(kBehind,
                         [&] {
                           called = true;
                           return ncclSuccess;
                         }),
            ncclRemoteError);
  EXPECT_FALSE(called);
}

TEST_F(NcclGroupsTest, AfterAnAbortNothingIsCalledOrDestroyed) {
  groups_.Add(kFront, "the dp group of 2");
  groups_.Add(kBehind, "the tp group of 2");
  groups_.Destroy(kBehind);
  EXPECT_EQ(simulation_.destroyed, std::vector<ncclComm_t>{kBehind});
  groups_.AbortAll("rank 1 failed");
  EXPECT_EQ(simulation_.aborted, std::vector<ncclComm_t>{kFront});
  EXPECT_THROW(groups_.Call(kFront, [] { return ncclSuccess; }), CommError);
  EXPECT_THROW(groups_.ThrowIfFailed(), CommError);
  groups_.Destroy(kFront);
  EXPECT_EQ(simulation_.destroyed.size(), 1u);
}

TEST(NcclVersion, LaunchesKeepTheirOrderFrom226On) {
  EXPECT_FALSE(NcclKeepsLaunchOrder(22505));
  EXPECT_TRUE(NcclKeepsLaunchOrder(22602));
  EXPECT_TRUE(NcclKeepsLaunchOrder(22809));
  EXPECT_EQ(NcclVersionName(22505), "2.25.5");
}

std::vector<GroupKind> EveryGroup() {
  std::vector<GroupKind> groups;
  for (int kind = 0; kind < kGroupKindCount; ++kind) groups.push_back(static_cast<GroupKind>(kind));
  return groups;
}

// Without an order of their own, calls of two groups in two streams can wait for one another.
TEST(NcclStreams, AllAreOneBefore226) {
  for (const GroupKind group : EveryGroup()) {
    EXPECT_EQ(AsyncStreamOf(group, kOldestNccl), NcclStreamKind::kDevice) << Name(group);
    EXPECT_EQ(AsyncStreamOf(group, 22505), NcclStreamKind::kDevice) << Name(group);
    EXPECT_NE(AsyncStreamOf(group, 22600), NcclStreamKind::kDevice) << Name(group);
  }
}

TEST(NcclStreams, TensorParallelCallsStandBehindNoOthers) {
  for (const GroupKind group : EveryGroup()) {
    EXPECT_EQ(AsyncStreamOf(group, 22809) == NcclStreamKind::kOwn, group == GroupKind::kTensor)
        << Name(group);
  }
}

TEST(NcclStreams, MessagesToNeighboursNeedMoreThanOne) {
  for (const GroupKind group : EveryGroup()) {
    const bool sends = group == GroupKind::kPipeline || group == GroupKind::kContext;
    EXPECT_EQ(NcclCanRun(group, 2, 22505), !sends) << Name(group);
    EXPECT_TRUE(NcclCanRun(group, 1, 22505)) << Name(group);
    EXPECT_TRUE(NcclCanRun(group, 2, 22600)) << Name(group);
  }
}

}  // namespace
}  // namespace trimtab
