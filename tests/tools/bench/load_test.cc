#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/data/tokenizer.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/tools/serve/fake_engine.h"
#include "tools/bench/load_generator.h"
#include "tools/bench/load_report.h"
#include "tools/serve/http_server.h"

namespace trimtab {
namespace {

using std::chrono::milliseconds;

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

TEST(Workload, ReadsTraces) {
  const std::string path = ScratchFolder() + "/trace.jsonl";
  WriteBytes(path,
             "{\"at_s\": 0.5, \"input_tokens\": 3, \"output_tokens\": 4}\n\n"
             "{\"at_s\": 0.5, \"input_tokens\": 1, \"output_tokens\": 1}\n");
  const std::vector<LoadRequest> trace = ReadTrace(path);
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].at_s, 0.5);
  EXPECT_EQ(trace[0].output_tokens, 4);
  for (const char* bad : {"", "{}", "{\"input_tokens\": 0, \"output_tokens\": 1}",
                          "{\"at_s\": 2, \"input_tokens\": 1, \"output_tokens\": 1}\n"
                          "{\"at_s\": 1, \"input_tokens\": 1, \"output_tokens\": 1}",
                          "{\"input_tokens\": 1, \"output_tokens\": 1, \"x\": 1}"}) {
    WriteBytes(path, bad);
    EXPECT_TRUE(MessageOf<InputError>([&] { ReadTrace(path); }).starts_with(path)) << bad;
  }
}

TEST(LoadReport, IsTheOneWorkedOutByHand) {
  const LatencySummary summary = Summarise({4, 1, 3, 2, 5});
  EXPECT_EQ(summary.mean, 3);
  EXPECT_EQ(summary.p50, 3);
  EXPECT_DOUBLE_EQ(summary.p90, 4.6);
  EXPECT_DOUBLE_EQ(summary.p99, 4.96);

  const LoadOutcome::Clock::time_point start{};
  const auto at = [&](int ms) { return start + milliseconds(ms); };
  const std::vector<LoadOutcome> outcomes = {
      {.sent = at(0), .arrivals = {at(100), at(110), at(130)}, .prompt_tokens = 5, .tokens = 3},
      {.sent = at(50), .arrivals = {at(250)}, .prompt_tokens = 7, .tokens = 1},
      {.sent = at(60), .failure = "status 503"},
      {.sent = at(100), .arrivals = {at(150), at(1100)}, .prompt_tokens = 1, .tokens = 2}};
  const LoadReport report = MakeLoadReport(outcomes, ParseLimits("ttft<150ms,tpot<0.5s"));
  EXPECT_EQ(report.requests, 4);
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.first_failure, "status 503");
  EXPECT_DOUBLE_EQ(report.duration_s, 1.1);
  EXPECT_EQ(report.output_tokens, 6);
  EXPECT_EQ(report.prompt_tokens, 13);
  EXPECT_DOUBLE_EQ(report.ttft.p50, 100);
  EXPECT_DOUBLE_EQ(report.tpot.mean, (15 + 950) / 2.0);
  EXPECT_DOUBLE_EQ(report.itl.mean, (10 + 20 + 950) / 3.0);
  EXPECT_DOUBLE_EQ(report.e2e.p50, 200);
  EXPECT_EQ(report.good, 1);  // the second is late with its first token, the fourth with the rest
  EXPECT_DOUBLE_EQ(report.goodput(), 1 / 1.1);
  EXPECT_EQ(MakeLoadReport(outcomes, {}).good, 3);
  const LoadReport none = MakeLoadReport({}, {});
  EXPECT_EQ(none.output_tokens_per_s(), 0);
  for (const char* bad :
       {"ttft", "ttft<", "ttft<5", "ttft<-5ms", "x<5ms", "ttft<5ms,", "ttft<5 ms"}) {
    EXPECT_THROW(ParseLimits(bad), UsageError) << bad;
  }
}

TEST(Load, OfAServerAndOfAnEngineIsTheSame) {
  FakeEngine direct;
  FakeEngine served;
  direct.step_time = served.step_time = milliseconds(2);
  const auto tokenizer = MakeByteTokenizer();
  HttpServer server(served,
                    {.name = "echo",
                     .tokenizer = tokenizer.get(),
                     .limits = served.limits(),
                     .vocab_size = served.vocab_size()},
                    {.port = 0});
  const std::string url = fmt::format("http://127.0.0.1:{}", server.port());
  const std::vector<LoadRequest> requests = DrawRequests("uniform:5-20/uniform:10-20", 24, 400, 7);
  const auto over_http = MakeHttpTarget({.url = url});
  const auto in_process = MakeEngineTarget(direct);
  for (const int64_t concurrency : {int64_t{0}, int64_t{4}}) {
    // Ids of letters and the like, so that every token is text.
    const LoadOptions options = {.concurrency = concurrency, .vocab_size = 127};
    const LoadReport http = MakeLoadReport(PutLoad(*over_http, requests, options), {});
    const LoadReport here = MakeLoadReport(PutLoad(*in_process, requests, options), {});
    int64_t outputs = 0;
    for (const LoadRequest& request : requests) outputs += request.output_tokens;
    for (const LoadReport* report : {&http, &here}) {
      EXPECT_EQ(report->requests, 24);
      EXPECT_EQ(report->failed, 0) << report->first_failure;
      EXPECT_EQ(report->output_tokens, outputs);
      EXPECT_GE(report->ttft.p50, 1.9);
      EXPECT_GE(report->e2e.mean, report->ttft.mean);
    }
    EXPECT_EQ(http.prompt_tokens, here.prompt_tokens);
  }
  EXPECT_THROW(MakeHttpTarget({.url = "https://127.0.0.1"}), UsageError);
  server.Drain();
  const LoadOutcome refused = over_http->Run({0, 4, 4}, {1, 2, 3, 4});
  EXPECT_FALSE(refused.failure.empty());
  EXPECT_THROW(MakeHttpTarget({.url = url}), EnvironmentError);
}

TEST(Load, EndsWhenItIsStopped) {
  FakeEngine engine;
  engine.step_time = milliseconds(2);
  const auto target = MakeEngineTarget(engine);
  std::atomic<int> asked = 0;
  for (const int64_t concurrency : {int64_t{0}, int64_t{2}}) {
    asked = 0;
    const auto outcomes =
        PutLoad(*target, DrawRequests("4/4", 1000, 0, 1),
                {.concurrency = concurrency, .stop = [&] { return ++asked > 5; }});
    EXPECT_GE(outcomes.size(), 1u);
    EXPECT_LE(outcomes.size(), 5u);
  }
}

}  // namespace
}  // namespace trimtab
