#include "engine/infer/load/workload.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

TEST(Workload, DrawsWhatItsNamesSay) {
  std::mt19937_64 random(5);
  const auto mean_log = [&](const char* text, int64_t low, int64_t high) {
    const LengthDistribution lengths(text, "x");
    double sum = 0;
    for (int i = 0; i < 20000; ++i) {
      const int64_t length = lengths.Draw(random);
      EXPECT_GE(length, low);
      EXPECT_LE(length, high);
      sum += static_cast<double>(length);
    }
    return sum / 20000;
  };
  EXPECT_EQ(mean_log("7", 7, 7), 7);
  EXPECT_NEAR(mean_log("uniform:10-20", 10, 20), 15, 0.2);
  EXPECT_NEAR(mean_log("exponential:100", 1, 100000), 100, 3);
  EXPECT_NEAR(mean_log("lognormal:100:0.5", 1, 100000), 100 * std::exp(0.125), 3);
}

TEST(Workload, ComesAsAPoissonProcessTheSameEveryTime) {
  const std::vector<LoadRequest> requests = DrawRequests("8/4", 20000, 50, 3);
  EXPECT_NEAR(requests.back().at_s, 400, 10);
  EXPECT_EQ(requests[0].prompt_tokens, 8);
  EXPECT_EQ(requests[0].output_tokens, 4);
  // The squared coefficient of variation of exponential gaps is 1.
  double sum = 0;
  double squares = 0;
  for (size_t i = 1; i < requests.size(); ++i) {
    const double gap = requests[i].at_s - requests[i - 1].at_s;
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / 19999;
  EXPECT_NEAR(squares / 19999 / (mean * mean) - 1, 1, 0.1);
  EXPECT_EQ(DrawRequests("uniform:1-99/4", 100, 9, 3)[99].at_s,
            DrawRequests("uniform:1-99/4", 100, 9, 3)[99].at_s);
  EXPECT_EQ(DrawRequests("1/1", 3, 0, 1)[2].at_s, 0);
}

TEST(Workload, RefusesWhatItDoesNotUnderstand) {
  for (const char* bad : {"", "0", "-1", "1.5", "x", "uniform:5", "uniform:9-3", "uniform:0-3",
                          "exponential:", "lognormal:5", "128 ", "1e300"}) {
    EXPECT_THROW(LengthDistribution(bad, "x"), UsageError) << bad;
  }
  EXPECT_THROW(DrawRequests("128", 1, 0, 1), UsageError);
}

TEST(Workload, OffersWhatComesInItsGaps) {
  // One request a second, of 10 tokens in the mean: the last one's second is not over yet.
  ServiceLoad load = {.requests = {{1, 3, 5}, {2, 3, 10}, {3, 3, 15}}};
  EXPECT_EQ(load.offered_tokens_per_s(), 10);
  load.concurrency = 2;
  EXPECT_EQ(load.offered_tokens_per_s(), 0);
  EXPECT_EQ((ServiceLoad{.requests = {{1, 3, 5}}}).offered_tokens_per_s(), 0);
  EXPECT_EQ(ServiceLoad().offered_tokens_per_s(), 0);
  // A Poisson process offers its rate, however few requests of it there are.
  double sum = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const ServiceLoad few = {.requests = DrawRequests("8/4", 20, 50, seed)};
    sum += 1 / few.offered_tokens_per_s();
  }
  EXPECT_NEAR(sum / 2000 * (50 * 4), 1, 0.02);
}

TEST(Workload, PromptsShareNoMoreThanTheyHave) {
  ServiceLoad load = {.requests = {{0, 3, 1}, {0, 9, 1}}};
  EXPECT_FALSE(load.shares());
  ShareBeginnings(5, load.requests);
  EXPECT_TRUE(load.shares());
  EXPECT_EQ(load.requests[0].shared_tokens, 3);
  EXPECT_EQ(load.requests[1].shared_tokens, 5);
}

TEST(Workload, ReadsTraces) {
  const std::string path = ScratchFolder() + "/trace.jsonl";
  WriteBytes(path,
             "{\"at_s\": 0.5, \"input_tokens\": 3, \"output_tokens\": 4, \"shared_tokens\": 2}\n\n"
             "{\"at_s\": 0.5, \"input_tokens\": 1, \"output_tokens\": 1}\n");
  const std::vector<LoadRequest> trace = ReadTrace(path);
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].at_s, 0.5);
  EXPECT_EQ(trace[0].output_tokens, 4);
  EXPECT_EQ(trace[0].shared_tokens, 2);
  EXPECT_EQ(trace[1].shared_tokens, 0);
  for (const char* bad : {"", "{}", "{\"input_tokens\": 0, \"output_tokens\": 1}",
                          "{\"at_s\": 2, \"input_tokens\": 1, \"output_tokens\": 1}\n"
                          "{\"at_s\": 1, \"input_tokens\": 1, \"output_tokens\": 1}",
                          "{\"input_tokens\": 1, \"output_tokens\": 1, \"shared_tokens\": 2}",
                          "{\"input_tokens\": 1, \"output_tokens\": 1, \"x\": 1}"}) {
    WriteBytes(path, bad);
    EXPECT_TRUE(MessageOf<InputError>([&] { ReadTrace(path); }).starts_with(path)) << bad;
  }
}

TEST(ServiceLoad, JsonRoundTrips) {
  ServiceLoad load = {.requests = DrawRequests("uniform:5-9/7", 6, /*rate=*/3, /*seed=*/1)};
  ShareBeginnings(4, load.requests);
  EXPECT_EQ(ServiceLoadFromJson(ToJson(load), "load"), load);
  load.concurrency = 8;
  EXPECT_EQ(ServiceLoadFromJson(ToJson(load), "load"), load);
  for (const char* bad : {"[]", "[[0, 1, 1]]", "[[0, 0, 1, 0]]", "[[0, 1, 1, 2]]",
                          "[[0, 1, 1.5, 0]]", "[[2, 1, 1, 0], [1, 1, 1, 0]]"}) {
    const nlohmann::json json = {{"concurrency", 0}, {"requests", nlohmann::json::parse(bad)}};
    const std::string message = MessageOf<InputError>([&] { ServiceLoadFromJson(json, "load"); });
    EXPECT_TRUE(message.starts_with("load.requests[")) << bad << ": " << message;
  }
}

}  // namespace
}  // namespace trimtab
