#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/infer/load/load_report.h"
#include "profiler/serving/load_generator.h"
#include "tests/tools/serve/fake_engine.h"
#include "tools/bench/http_target.h"
#include "tools/serve/http_server.h"

namespace trimtab {
namespace {

using std::chrono::milliseconds;

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
  EXPECT_THROW(MakeHttpTarget({.url = url + "/v1"}), UsageError);
  EXPECT_THROW(MakeHttpTarget({.url = "http://"}), UsageError);
  EXPECT_EQ(MakeHttpTarget({.url = url + "/"})->Run({0, 4, 4}, {1, 2, 3, 4}).failure, "");
  // Tokens that end a document are no text; they came all the same.
  const LoadOutcome silent = over_http->Run({0, 4, 4}, {256, 256, 256, 256});
  EXPECT_EQ(silent.failure, "");
  EXPECT_EQ(silent.tokens, 4);
  EXPECT_EQ(silent.arrivals_s.size(), 1u);
  server.Drain();
  while (!server.finished()) std::this_thread::sleep_for(milliseconds(5));
  const LoadOutcome refused = over_http->Run({0, 4, 4}, {1, 2, 3, 4});
  EXPECT_FALSE(refused.failure.empty());
  EXPECT_THROW(MakeHttpTarget({.url = url}), EnvironmentError);
}

/// Answers at once.
class Nobody : public LoadTarget {
 public:
  LoadOutcome Run(const LoadRequest& request, const std::vector<int32_t>&) override {
    return {.sent_s = 0, .tokens = request.output_tokens};
  }
};

// More than a process may have threads, ended ones that nobody joined included.
TEST(Load, OfManyRequestsNeedsNoThreadForThoseThatHaveEnded) {
  Nobody target;
  const std::vector<LoadRequest> requests(40000, {.prompt_tokens = 1, .output_tokens = 1});
  EXPECT_EQ(PutLoad(target, requests, {}).size(), 40000u);
}

TEST(Load, TellsThatTheEngineHasFailed) {
  FakeEngine engine;
  const auto target = MakeEngineTarget(engine);
  EXPECT_EQ(target->Run({0, 4, 4}, {1, 2, 3, 4}).failure, "");
  EXPECT_EQ(target->failure(), "");
  engine.broken = true;
  EXPECT_EQ(target->Run({0, 4, 4}, {1, 2, 3, 4}).failure, "the engine failed: a wheel came off");
  EXPECT_EQ(target->failure(), "the engine failed: a wheel came off");
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
