#include "cost_model/recordings/stream_clock.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

CommRecord Message(GroupKind group, int64_t id, CollectiveKind kind = CollectiveKind::kAllReduce) {
  return {.kind = kind, .group = group, .ranks = 2, .bytes = 8, .id = id};
}

TEST(StreamClock, AMessageThatIsNotAsynchronousHoldsUpTheOps) {
  StreamClock clock(/*overlaps=*/true);
  clock.Compute(1);
  const TimeSpan span = clock.Submit(Message(GroupKind::kTensor, 0), 2);
  EXPECT_EQ(span.start_s, 1);
  EXPECT_EQ(span.end_s, 3);
  EXPECT_EQ(clock.now_s(), 3);
}

TEST(StreamClock, WhatIsStillToGoIsWaitedFor) {
  StreamClock clock(true);
  clock.Submit(Message(GroupKind::kData, 1), 5);
  clock.Compute(3);
  EXPECT_EQ(clock.Wait(Message(GroupKind::kData, 1)).seconds(), 2);
  EXPECT_EQ(clock.now_s(), 5);
}

TEST(StreamClock, WhatIsOverIsNotWaitedFor) {
  StreamClock clock(true);
  clock.Submit(Message(GroupKind::kData, 1), 2);
  clock.Compute(3);
  EXPECT_EQ(clock.Wait(Message(GroupKind::kData, 1)).seconds(), 0);
  EXPECT_EQ(clock.now_s(), 3);
}

TEST(StreamClock, MessagesOfAGroupFollowOneAnother) {
  StreamClock clock(true);
  clock.Submit(Message(GroupKind::kData, 1), 4);
  const TimeSpan second = clock.Submit(Message(GroupKind::kData, 2), 1);
  EXPECT_EQ(second.start_s, 4);
  EXPECT_EQ(clock.Submit(Message(GroupKind::kContext, 3), 1).start_s, 0) << "another stream";
  EXPECT_EQ(clock.Wait(Message(GroupKind::kData, 2)).seconds(), 5);
  EXPECT_EQ(clock.Wait(Message(GroupKind::kData, 1)).seconds(), 0);
}

TEST(StreamClock, KnowsWhatIsUnderWay) {
  StreamClock clock(true);
  clock.Submit(Message(GroupKind::kData, 1), 4);
  clock.Submit(Message(GroupKind::kTensor, 2), 1);
  EXPECT_EQ(clock.EndOf(Message(GroupKind::kData, 1)), 4);
  EXPECT_EQ(clock.under_way(), std::vector<int64_t>({1, 2}));
  clock.Wait(Message(GroupKind::kTensor, 2));
  EXPECT_EQ(clock.under_way(), std::vector<int64_t>({1}));
}

TEST(StreamClock, AnOpIsBesideMessagesAsLongAsAnyIsOnItsWay) {
  StreamClock clock(true);
  EXPECT_EQ(clock.Beside(2), 0);
  clock.Submit(Message(GroupKind::kContext, 1, CollectiveKind::kSend), 4);
  clock.Submit(Message(GroupKind::kContext, 2, CollectiveKind::kRecv), 3);
  EXPECT_EQ(clock.Beside(2), 2);
  EXPECT_EQ(clock.Beside(9), 4);
  clock.Compute(3);
  EXPECT_EQ(clock.Beside(9), 1);
  clock.Compute(3);
  EXPECT_EQ(clock.Beside(9), 0);
  clock.Submit(Message(GroupKind::kData, 3), 4);
  clock.Submit(Message(GroupKind::kTensor, 4), 1);
  EXPECT_EQ(clock.Beside(9), 4) << "once, however many there are";
}

TEST(StreamClock, KeepsMessagesOfAnEarlierStepApart) {
  StreamClock clock(true);
  clock.Submit(Message(GroupKind::kData, 1), 4);
  clock.BeginStep();
  EXPECT_EQ(clock.Beside(9), 0);
  EXPECT_EQ(clock.BesideEarlier(9), 4);
  clock.Submit(Message(GroupKind::kTensor, 2), 1);
  EXPECT_EQ(clock.Beside(9), 1);
}

TEST(StreamClock, SendsAndReceivesPassEachOther) {
  StreamClock clock(true);
  clock.Submit(Message(GroupKind::kContext, 1, CollectiveKind::kSend), 4);
  EXPECT_EQ(clock.Submit(Message(GroupKind::kContext, 2, CollectiveKind::kRecv), 3).start_s, 0);
}

TEST(StreamClock, NothingRunsBesideOpsWhereTheDeviceCarriesMessagesItself) {
  StreamClock clock(/*overlaps=*/false);
  clock.Submit(Message(GroupKind::kData, 1), 5);
  EXPECT_EQ(clock.now_s(), 5);
  clock.Compute(1);
  EXPECT_EQ(clock.Wait(Message(GroupKind::kData, 1)).seconds(), 0);
  EXPECT_EQ(clock.now_s(), 6);
}

// Steps around a ring: each takes what is on its way, and leaves the next under way.
TEST(StreamClock, RepeatsWhatIsTheSameEachTime) {
  const auto step = [](StreamClock& clock, int64_t id) {
    clock.Compute(2);
    clock.Wait(Message(GroupKind::kContext, id));
    clock.Submit(Message(GroupKind::kContext, id + 1), 3);
  };
  for (const bool overlaps : {true, false}) {
    StreamClock each(overlaps);
    each.Submit(Message(GroupKind::kContext, 1), 3);
    each.Submit(Message(GroupKind::kData, 100), 11);
    StreamClock at_once = each;
    for (int64_t id = 1; id <= 5; ++id) step(each, id);
    const StreamClock before = at_once;
    step(at_once, 1);
    at_once.RepeatSince(before, 4);
    EXPECT_EQ(at_once.now_s(), each.now_s());
    EXPECT_EQ(at_once.Wait(Message(GroupKind::kContext, 2)).end_s,
              each.Wait(Message(GroupKind::kContext, 6)).end_s);
    EXPECT_EQ(at_once.Wait(Message(GroupKind::kData, 100)).end_s,
              each.Wait(Message(GroupKind::kData, 100)).end_s)
        << "what was under way before is not put off";
  }
}

TEST(StreamClockDeathTest, WaitsOnlyForWhatIsUnderWay) {
  StreamClock clock(true);
  EXPECT_DEATH(clock.Wait(Message(GroupKind::kData, 7)), "message 7 of dp is not under way");
}

}  // namespace
}  // namespace trimtab
