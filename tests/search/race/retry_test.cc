#include "search/race/retry.h"

#include <gtest/gtest.h>

#include <utility>

namespace trimtab {
namespace {

CandidateRecord Predicted(int64_t peak_mem_bytes) {
  CandidateRecord candidate;
  candidate.run.device = DeviceKind::kCuda;
  candidate.closed_form.emplace();
  candidate.closed_form->peak_mem_bytes = peak_mem_bytes;
  return candidate;
}

void Fail(CandidateRecord& candidate, TrialState state) {
  ++candidate.failures;
  candidate.last_state = state;
}

TEST(Retry, WhatExplainsItselfIsBelievedAtOnce) {
  for (const TrialState state :
       {TrialState::kOutOfMemory, TrialState::kNumeric, TrialState::kFailed}) {
    CandidateRecord candidate = Predicted(1);
    EXPECT_FALSE(HasFailed(candidate));
    Fail(candidate, state);
    EXPECT_TRUE(HasFailed(candidate)) << Name(state);
  }
}

TEST(Retry, ACrashAndATimeOutAreTriedOnceMore) {
  for (const TrialState state : {TrialState::kCrashed, TrialState::kTimedOut}) {
    CandidateRecord candidate = Predicted(1);
    Fail(candidate, state);
    EXPECT_FALSE(HasFailed(candidate)) << Name(state);
    EXPECT_EQ(TimeLimitFactor(candidate), state == TrialState::kTimedOut ? 2 : 1);
    Fail(candidate, state);
    EXPECT_TRUE(HasFailed(candidate)) << Name(state);
  }
}

TEST(Retry, LostNodesAreNotTheCandidatesFault) {
  CandidateRecord candidate = Predicted(1);
  candidate.last_state = TrialState::kLost;
  candidate.losses = 2 * kMostLosses;  // preempted
  candidate.open_losses = kMostLosses;
  EXPECT_FALSE(IsSuspect(candidate));
  ++candidate.open_losses;
  EXPECT_TRUE(IsSuspect(candidate));
  EXPECT_FALSE(HasFailed(candidate)) << "the others may lose theirs too";
  candidate.own_losses = std::exchange(candidate.open_losses, 0);
  EXPECT_TRUE(HasFailed(candidate)) << "another ran";
}

TEST(Retry, WhatMayBeTheEnvironmentsFaultIsSuspectedOnly) {
  std::vector<CandidateRecord> candidates = {Predicted(1), Predicted(1), Predicted(1)};
  candidates[0].suspects = 1;
  candidates[0].last_state = TrialState::kFailed;
  EXPECT_TRUE(IsSuspect(candidates[0]));
  EXPECT_FALSE(HasFailed(candidates[0]));
  candidates[1].suspects = 1;
  EXPECT_FALSE(EnvironmentFails(candidates)) << "neither ran before";
  candidates[1].visits.emplace_back();
  EXPECT_TRUE(EnvironmentFails(candidates));
}

TEST(Retry, OutOfMemoryRulesOutWhoNeedsAsMuch) {
  std::vector<CandidateRecord> candidates = {Predicted(300), Predicted(200), Predicted(100),
                                             Predicted(200), Predicted(500)};
  EXPECT_TRUE(FindHopeless(candidates).empty());
  Fail(candidates[1], TrialState::kOutOfMemory);
  candidates[1].key = "tp=1";
  candidates[4].visits.emplace_back();  // it ran: what runs is not ruled out
  const std::vector<Hopeless> hopeless = FindHopeless(candidates);
  ASSERT_EQ(hopeless.size(), 2u);
  EXPECT_EQ(hopeless[0].index, 0u);
  EXPECT_EQ(hopeless[0].why, "would need 300 B, and tp=1 ran out with 200 B");
  EXPECT_EQ(hopeless[1].index, 3u);
}

TEST(Retry, RanksOfOneMachineShareItsMemory) {
  std::vector<CandidateRecord> candidates = {Predicted(100), Predicted(60)};
  for (CandidateRecord& candidate : candidates) candidate.run.device = DeviceKind::kCpu;
  candidates[1].run.layout.dp = 2;
  Fail(candidates[0], TrialState::kOutOfMemory);
  EXPECT_EQ(FindHopeless(candidates).size(), 1u);
  candidates[1].run.memory_per_rank_bytes = 1000;
  candidates[0].run.memory_per_rank_bytes = 1000;
  EXPECT_TRUE(FindHopeless(candidates).empty());
}

}  // namespace
}  // namespace trimtab
