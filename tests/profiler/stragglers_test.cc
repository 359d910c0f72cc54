#include "profiler/stragglers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/data/dataset/open_token_source.h"
#include "profiler/measure.h"

namespace trimtab {
namespace {

std::vector<int64_t> SlowRanks(const std::vector<double>& own_s) {
  std::vector<int64_t> ranks;
  for (const Straggler& each : FindStragglers(own_s)) ranks.push_back(each.rank);
  return ranks;
}

TEST(Stragglers, AreFarAboveTheMedianOfTheOthers) {
  using Ranks = std::vector<int64_t>;
  EXPECT_EQ(SlowRanks({1, 1, 1, 3}), Ranks{3});
  EXPECT_EQ(SlowRanks({3, 1}), Ranks{0});
  EXPECT_EQ(SlowRanks({1, 1, 4, 1, 1, 3, 1}), (Ranks{2, 5}));
  EXPECT_DOUBLE_EQ(FindStragglers(std::vector<double>{2, 2, 7}).at(0).times, 3.5);
}

TEST(Stragglers, AreNotThoseWhoTakeTurnsOnSharedCores) {
  for (const std::vector<double>& own_s : std::vector<std::vector<double>>{
           {}, {5}, {1, 1}, {1, 1, 2}, {1, 2, 3, 4}, {1, 1, 2, 2, 3}, {1, 1.2, 0.9, 1.1}}) {
    EXPECT_TRUE(SlowRanks(own_s).empty()) << own_s.size() << " ranks";
  }
}

TEST(Stragglers, AreToldInWords) {
  EXPECT_EQ(InWords(std::vector<Straggler>{{.rank = 3, .host = "n17", .gpu = 2, .times = 3.14},
                                           {.rank = 8, .host = "n18", .times = 2.6}}),
            "rank 3 (n17, GPU 2) is 3.1 times as slow as the others; "
            "rank 8 (n18) is 2.6 times as slow as the others");
}

/// Whatever its device does takes so much longer.
class SlowDevice final : public Recorder {
 public:
  explicit SlowDevice(std::chrono::milliseconds each) : each_(each) {}
  void BeginOp(const OpRecord&) override { std::this_thread::sleep_for(each_); }
  void BeginComm(const CommRecord&) override {}
  void BeginWait(const CommRecord&) override {}
  void End() override {}

 private:
  const std::chrono::milliseconds each_;
};

/// What two ranks measure of which `slow` have slow devices.
Measurement MeasureWithSlow(const std::vector<int>& slow) {
  RunConfig run;
  run.model.vocab_size = 128;
  run.model.hidden_size = 16;
  run.model.num_layers = 1;
  run.model.num_heads = 1;
  run.model.num_kv_heads = 1;
  run.model.ffn_hidden_size = 32;
  run.model.max_sequence_length = 8;
  run.global_batch = 2;
  run.sequence_length = 8;
  run.threads_per_rank = 1;
  run.layout.dp = 2;
  run = WithLength(run);
  const MeasureOptions options = {.warmup = 0, .steps = 1, .max_steps = 1, .breakdown_visit = 0};
  const auto source = OpenTokenSource(run);
  // Long against everything else that a machine might do to ranks.
  SlowDevice device(std::chrono::milliseconds(10));
  Measurement measurement;
  RunRanks(run, [&](Rank& rank) {
    Visitor visitor(run, options, *source, rank);
    if (std::find(slow.begin(), slow.end(), rank.index()) != slow.end()) {
      rank.device().set_recorder(&device);
    }
    const Measurement mine = visitor.Visit();
    rank.device().set_recorder(nullptr);
    if (rank.speaks()) measurement = mine;
  });
  return measurement;
}

TEST(Stragglers, ASlowRankIsNamedWithItsHost) {
  const Measurement measurement = MeasureWithSlow({1});
  ASSERT_EQ(measurement.stragglers.size(), 1u);
  const Straggler& slow = measurement.stragglers[0];
  EXPECT_EQ(slow.rank, 1);
  EXPECT_EQ(slow.host, HostName());
  EXPECT_EQ(slow.gpu, -1);
  EXPECT_GE(slow.times, kStragglerTimes);
}

TEST(Stragglers, EquallySlowRanksAreNone) {
  EXPECT_TRUE(MeasureWithSlow({0, 1}).stragglers.empty());
}

}  // namespace
}  // namespace trimtab
