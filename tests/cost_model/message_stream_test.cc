#include "cost_model/message_stream.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

TEST(MessageStream, IsWaitedForAsLongAsNothingHidIt) {
  MessageStream stream;
  EXPECT_EQ(stream.Submit(1, /*now=*/2, /*seconds=*/3), 2);
  EXPECT_EQ(stream.Wait(1, /*now=*/4), 1);
  EXPECT_EQ(stream.Submit(2, 5, 1), 5);
  EXPECT_EQ(stream.Wait(2, 7), 0);
}

TEST(MessageStream, CarriesOneMessageAtATime) {
  MessageStream stream;
  stream.Submit(1, 0, 3);
  EXPECT_EQ(stream.Submit(2, 1, 2), 3);
  EXPECT_FALSE(stream.idle());
  EXPECT_EQ(stream.Wait(2, 1), 4);
  EXPECT_EQ(stream.Wait(1, 5), 0) << "in any order";
  EXPECT_TRUE(stream.idle());
}

TEST(MessageStreamDeathTest, KnowsWhatWasSubmitted) {
  MessageStream stream;
  EXPECT_DEATH(stream.Wait(1, 0), "message 1 was not submitted");
}

}  // namespace
}  // namespace trimtab
