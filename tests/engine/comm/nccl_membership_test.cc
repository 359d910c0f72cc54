// Communicators of NCCL that are made when they are first used, over a NCCL that counts them.
#include "engine/comm/cuda/nccl_membership.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/comm/communicator.h"

namespace trimtab {
namespace {

struct Calls {
  std::vector<int> made;  // sizes of groups
  std::vector<ncclComm_t> destroyed;
  std::vector<ncclComm_t> aborted;
  ncclResult_t result = ncclSuccess;
};
Calls* calls = nullptr;

ncclResult_t Init(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  EXPECT_EQ(id.internal[0], 'x');
  EXPECT_EQ(rank, 1);
  if (calls->result != ncclSuccess) return calls->result;
  calls->made.push_back(size);
  *comm = reinterpret_cast<ncclComm_t>(calls->made.size());
  return ncclSuccess;
}
ncclResult_t Destroy(ncclComm_t comm) {
  calls->destroyed.push_back(comm);
  return ncclSuccess;
}
ncclResult_t Abort(ncclComm_t comm) {
  calls->aborted.push_back(comm);
  return ncclSuccess;
}
ncclResult_t AsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
const char* ErrorString(ncclResult_t) { return "no more connections"; }
const char* LastError(ncclComm_t) { return ""; }

const NcclLibrary kCounting = {.get_error_string = ErrorString,
                               .get_last_error = LastError,
                               .comm_init_rank_config = Init,
                               .comm_abort = Abort,
                               .comm_destroy = Destroy,
                               .comm_get_async_error = AsyncError};

class NcclMembershipTest : public testing::Test {
 protected:
  NcclMembershipTest() { calls = &calls_; }

  std::unique_ptr<NcclMembership> Join(int size) {
    return std::make_unique<NcclMembership>(kCounting, groups_, fmt::format("a group of {}", size),
                                            /*rank=*/1, size, [this] {
                                              ++ids_shared_;
                                              return NcclId{'x'};
                                            });
  }

  Calls calls_;
  int ids_shared_ = 0;
  NcclGroups groups_{kCounting};
};

TEST_F(NcclMembershipTest, OnlyGroupsThatAreUsedHaveACommunicator) {
  std::vector<std::unique_ptr<NcclMembership>> joined;
  for (const int size : {2, 3, 4, 5, 6}) joined.push_back(Join(size));
  EXPECT_TRUE(calls_.made.empty());
  EXPECT_EQ(ids_shared_, 0);
  for (const size_t used : {3, 1, 3, 3, 1}) {
    EXPECT_NE(joined[used]->Use(), nullptr);
    EXPECT_EQ(joined[used]->Use(), joined[used]->made());
  }
  EXPECT_EQ(calls_.made, (std::vector<int>{5, 3})) << "once each, as they were first used";
  EXPECT_EQ(ids_shared_, 2);
  EXPECT_EQ(joined[0]->made(), nullptr);
  for (const auto& each : joined) each->Destroy();
  EXPECT_EQ(calls_.destroyed.size(), 2u);
}

TEST_F(NcclMembershipTest, FailsWithTheOthers) {
  const auto used = Join(2);
  const auto unused = Join(3);
  used->Use();
  groups_.AbortAll("rank 0 failed");
  EXPECT_EQ(calls_.aborted.size(), 1u);
  EXPECT_THROW(unused->Use(), CommError) << "its peers will not come";
  EXPECT_EQ(calls_.made, std::vector<int>{2});
}

TEST_F(NcclMembershipTest, SaysWhichGroupCouldNotBeMade) {
  calls_.result = ncclSystemError;
  const auto group = Join(4);
  try {
    group->Use();
    FAIL() << "nothing was thrown";
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(),
                 "ncclCommInitRankConfig of rank 1 in a group of 4: no more connections");
  }
  EXPECT_EQ(group->made(), nullptr);
}

TEST_F(NcclMembershipTest, AGroupThatCannotBeMadeEndsTheOthersOfTheRank) {
  const auto used = Join(2);
  const ncclComm_t first = used->Use();
  calls_.result = ncclSystemError;
  EXPECT_THROW(Join(4)->Use(), CommError);
  EXPECT_EQ(calls_.aborted, std::vector<ncclComm_t>{first});
  calls_.result = ncclSuccess;
  try {
    Join(3)->Use();
    FAIL() << "nothing was thrown";
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(),
                 "ncclCommInitRankConfig of rank 1 in a group of 4: no more connections");
  }
  EXPECT_EQ(calls_.made, std::vector<int>{2});
}

TEST_F(NcclMembershipTest, PeersThatDoNotComeEndTheGroupsOfTheRank) {
  const auto used = Join(2);
  used->Use();
  NcclMembership alone(kCounting, groups_, "a group of 3", /*rank=*/1, /*size=*/3,
                       []() -> NcclId { throw CommError("rank 0 failed: it has no memory"); });
  EXPECT_THROW(alone.Use(), CommError);
  EXPECT_EQ(calls_.aborted.size(), 1u);
  EXPECT_EQ(alone.made(), nullptr);
}

}  // namespace
}  // namespace trimtab
