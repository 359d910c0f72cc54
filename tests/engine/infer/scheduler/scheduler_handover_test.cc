// Batchers that compute prompts, and batchers that go on with them: the texts are those of one
// scheduler alone, whatever happens on the way.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>

#include "tests/engine/infer/scheduler_cases.h"

namespace trimtab {
namespace {

/// A scheduler with its cache.
struct Server {
  Server(const SchedulerOptions& options, const Clock& clock)
      : model(options), scheduler(options, model, clock) {}

  CacheModel model;
  Scheduler scheduler;
  std::map<RequestId, int64_t> requests{};  // by its ids
};

/// Some that compute prompts and some that go on, which take steps in no order.
class Servers {
 public:
  Servers(const SchedulerOptions& options, size_t prefill, size_t decode) : prefill_(prefill) {
    for (size_t i = 0; i < prefill + decode; ++i) {
      SchedulerOptions own = options;
      own.hands_over = i < prefill;
      // Those that go on often have less room than those that hand over.
      if (i >= prefill) {
        own.blocks =
            CeilDiv(options.limits.sequence_length, options.block_size) + static_cast<int64_t>(i);
      }
      servers_.push_back(std::make_unique<Server>(own, clock_));
    }
  }

  size_t count() const { return servers_.size(); }
  bool HasWork() const {
    return !on_the_way_.empty() ||
           std::ranges::any_of(servers_, [](const auto& each) { return !each->requests.empty(); });
  }

  void Add(int64_t request, const GenerationRequest& asked, Trace& trace) {
    Server& server = *servers_[static_cast<size_t>(trace.Below(std::ssize(servers_))) % prefill_];
    server.requests[std::get<RequestId>(server.scheduler.AddRequest(asked))] = request;
  }

  /// Wherever the request is.
  void Abort(int64_t request) {
    for (const auto& server : servers_) {
      for (const auto& [id, known] : server->requests) {
        if (known != request) continue;
        EXPECT_TRUE(server->scheduler.Abort(id));
        server->requests.erase(id);
        return CollectCopied(*server);
      }
    }
    const auto found = std::ranges::find(on_the_way_, request, &Moving::request);
    ASSERT_NE(found, on_the_way_.end());
    Return(found->sequence.held);
    on_the_way_.erase(found);
  }

  /// A step of one; returns what it has brought, by request.
  std::map<int64_t, RequestUpdate> Step(size_t index) {
    Server& server = *servers_[index];
    std::map<int64_t, RequestUpdate> updates;
    const bool has_work = server.scheduler.HasWork();
    const int64_t before = server.scheduler.metrics().steps;
    for (RequestUpdate& update : server.scheduler.Step()) {
      const int64_t request = server.requests.at(update.id);
      if (update.finish != FinishReason::kNone) server.requests.erase(update.id);
      updates[request] = std::move(update);
    }
    EXPECT_EQ(server.scheduler.metrics().steps > before, has_work)
        << "says it has work, or has not";
    for (TransferredSequence& each : server.scheduler.TakePrefilled()) {
      const RequestId id = each.held.id;
      each.held.engine = static_cast<int64_t>(index);
      on_the_way_.push_back({server.requests.at(id), std::move(each)});
      server.requests.erase(id);
      EXPECT_FALSE(server.scheduler.Abort(id)) << "knows a sequence that has left";
    }
    CollectCopied(server);
    return updates;
  }

  /// One sequence that is on the way arrives.
  void Arrive(Trace& trace) {
    if (on_the_way_.empty()) return;
    const auto decode = std::ssize(servers_) - static_cast<int64_t>(prefill_);
    Server& server = *servers_[prefill_ + static_cast<size_t>(trace.Below(decode))];
    Moving moving = std::move(on_the_way_.front());
    on_the_way_.pop_front();
    server.requests[server.scheduler.AddPrefilled(std::move(moving.sequence))] = moving.request;
  }

  EngineMetrics metrics() const {
    EngineMetrics sum;
    for (const auto& each : servers_) sum += each->scheduler.metrics();
    return sum;
  }

 private:
  struct Moving {
    int64_t request = 0;
    TransferredSequence sequence{};
  };

  void Return(const PinnedBlocks& held) {
    servers_[static_cast<size_t>(held.engine)]->scheduler.ReleaseBlocksOf(held.id);
  }
  void CollectCopied(Server& server) {
    for (const PinnedBlocks& each : server.scheduler.TakeReleasable()) Return(each);
  }

  size_t prefill_;
  ManualClock clock_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::deque<Moving> on_the_way_;
};

class HandoverTraceTest : public testing::TestWithParam<uint32_t> {};

TEST_P(HandoverTraceTest, EveryAnswerIsThatOfItsRequestAlone) {
  Trace trace(GetParam());
  const SchedulerOptions options = trace.options();
  const auto prefill = static_cast<size_t>(1 + trace.Below(3));
  Servers servers(options, prefill, static_cast<size_t>(1 + trace.Below(3)));
  std::map<int64_t, Asked> asked;
  int64_t sent = 0;
  int64_t aborted = 0;
  int64_t rounds = 0;
  while (sent < 30 || servers.HasWork()) {
    for (int64_t i = trace.Below(3); i > 0 && sent < 30; --i, ++sent) {
      asked[sent].request = trace.AnyRequest();
      servers.Add(sent, asked[sent].request, trace);
    }
    if (trace.Below(25) == 0 && !asked.empty()) {
      const auto found = asked.find(trace.Below(sent));
      if (found != asked.end() && found->second.finish == FinishReason::kNone) {
        servers.Abort(found->first);
        asked.erase(found);
        ++aborted;
      }
    }
    if (trace.Below(3) > 0) servers.Arrive(trace);
    const auto next = static_cast<size_t>(trace.Below(static_cast<int64_t>(servers.count())));
    for (auto& [request, update] : servers.Step(next)) {
      asked.at(request).Take(update);
    }
    ASSERT_LT(++rounds, 40000) << "somebody starves";
  }
  for (const auto& [request, one] : asked) {
    SCOPED_TRACE(fmt::format("request {}", request));
    one.ExpectSameAs(Alone(one.request, options.limits.sequence_length));
    if (one.finish == FinishReason::kError) ++aborted;  // nothing may follow
  }
  const EngineMetrics metrics = servers.metrics();
  EXPECT_EQ(metrics.used_blocks, 0) << "blocks leak";
  EXPECT_EQ(metrics.running + metrics.waiting, 0);
  EXPECT_EQ(metrics.finished_requests + aborted, 30);
  EXPECT_GT(metrics.moved_requests, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HandoverTraceTest, testing::Range(1u, 201u));

SchedulerOptions Small(bool hands_over) {
  SchedulerOptions options = {.block_size = 4, .blocks = 4};
  options.limits = {.sequences = 4, .tokens_per_step = 16, .sequence_length = 16};
  options.hands_over = hands_over;
  return options;
}

// With its cache full of what nobody goes on with, a scheduler has no work until blocks come back.
TEST(SchedulerHandover, PromptsWaitForWhoGoesOn) {
  const ManualClock clock;
  CacheModel model(Small(true));
  Scheduler first(Small(true), model, clock);
  for (int32_t i = 0; i < 2; ++i) {
    first.AddRequest({.prompt = std::vector<int32_t>(11, i), .max_tokens = 3});
  }
  EXPECT_EQ(first.Step().size(), 1u);
  EXPECT_FALSE(first.HasWork());
  std::vector<TransferredSequence> moved = first.TakePrefilled();
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].computed, 11);
  EXPECT_EQ(moved[0].tokens.size(), 12u);
  EXPECT_FALSE(first.HasWork());
  EXPECT_TRUE(first.Step().empty());

  CacheModel other(Small(false));
  Scheduler second(Small(false), other, clock);
  second.AddPrefilled(std::move(moved[0]));
  EXPECT_TRUE(second.TakeReleasable().empty());
  EXPECT_EQ(second.Step().size(), 1u);
  const std::vector<PinnedBlocks> copied = second.TakeReleasable();
  ASSERT_EQ(copied.size(), 1u);
  first.ReleaseBlocksOf(copied[0].id);
  EXPECT_TRUE(first.HasWork());
  EXPECT_EQ(first.metrics().used_blocks, 0);
  EXPECT_EQ(second.metrics().moved_requests, 1);
  EXPECT_EQ(second.metrics().prompt_tokens, 0);
}

// What prompts have in common is copied once.
TEST(SchedulerHandover, CopiesNoBlockThatIsThere) {
  const ManualClock clock;
  SchedulerOptions options = Small(true);
  options.blocks = 16;
  CacheModel model(options);
  Scheduler first(options, model, clock);
  options.hands_over = false;

  class Counting final : public ModelExecutor {
   public:
    explicit Counting(const SchedulerOptions& options) : model_(options) {}
    std::vector<float> Run(const StepPlan& plan) override { return model_.Run(plan); }
    BlockContents ReadBlocks(std::span<const int32_t> blocks) override {
      return model_.ReadBlocks(blocks);
    }
    void WriteBlocks(std::span<const int32_t> blocks, const BlockContents& contents) override {
      copied += std::ssize(blocks);
      model_.WriteBlocks(blocks, contents);
    }
    int64_t vocab_size() const override { return kVocab; }
    int64_t copied = 0;

   private:
    CacheModel model_;
  } counting(options);

  Scheduler second(options, counting, clock);
  for (int64_t i = 0; i < 2; ++i) {
    std::vector<int32_t> prompt(8, 1);
    prompt.resize(11, static_cast<int32_t>(2 + i));
    first.AddRequest({.prompt = prompt, .max_tokens = 3});
    first.Step();
    for (TransferredSequence& each : first.TakePrefilled()) second.AddPrefilled(std::move(each));
    second.Step();
    EXPECT_EQ(counting.copied, i == 0 ? 3 : 4);
  }
  EXPECT_EQ(second.metrics().cached_tokens, 0);
}

}  // namespace
}  // namespace trimtab
