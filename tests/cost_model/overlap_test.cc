#include "cost_model/overlap.h"

#include <gtest/gtest.h>

#include "cost_model/closed_form.h"
#include "tests/cost_model/spaces.h"

namespace trimtab {
namespace {

CommRecord Message(CollectiveKind kind, int64_t id) {
  return {kind, GroupKind::kContext, 4, 1000, 1, id};
}

TEST(OverlapClock, ShowsWhatOpsDoNotHide) {
  OverlapClock clock;
  const CommRecord message = Message(CollectiveKind::kSend, 1);
  EXPECT_EQ(clock.Submit(message, 3), 0);
  clock.Pass(2);
  EXPECT_EQ(clock.Wait(message), 1);
  EXPECT_EQ(clock.Wait(message), 0) << "there is nothing left to wait for";

  const CommRecord hidden = Message(CollectiveKind::kSend, 2);
  clock.Submit(hidden, 3);
  clock.Pass(4);
  EXPECT_EQ(clock.Wait(hidden), 0);
}

TEST(OverlapClock, MessagesOfAKindQueueAndOthersDoNot) {
  OverlapClock clock;
  const CommRecord first = Message(CollectiveKind::kSend, 1);
  const CommRecord second = Message(CollectiveKind::kSend, 2);
  const CommRecord other = Message(CollectiveKind::kRecv, 3);
  EXPECT_EQ(clock.Submit(first, 3), 0);
  EXPECT_EQ(clock.Submit(second, 2), 3);
  EXPECT_EQ(clock.Submit(other, 4), 0);
  EXPECT_EQ(clock.Wait(second), 5);
  EXPECT_EQ(clock.Wait(first), 0);
  EXPECT_EQ(clock.Wait(other), 0);
}

// Of the ring only the last gradient's way home shows, where products take longer than messages; of
// gathered keys and values, the reduce-scatter of all gradients.
TEST(ContextParallelPrices, ShowWhatNothingHides) {
  RunConfig run;
  run.model = LoadModelConfig("llama2-7b");
  run.device = "cuda";
  run.global_batch = 8;
  run.sequence_length = 32768;
  const Cluster cluster = LoadCluster("8xh200");
  const auto exposed = [&](const char* layout) {
    run.layout = ParseLayout(layout, 0);
    return ClosedForm(run, cluster).breakdown_s.exposed_cp;
  };
  const double ring = exposed("cp=4,dp=2,precision=bf16");
  const double gathered = exposed("cp=4,dp=2,precision=bf16,cp_comm_type=all_gather");
  EXPECT_GT(ring, 0);
  EXPECT_GT(gathered, 2 * ring);
  EXPECT_LT(gathered, 5 * ring);
}

}  // namespace
}  // namespace trimtab
