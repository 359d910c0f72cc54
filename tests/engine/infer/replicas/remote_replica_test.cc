// An engine behind a link answers as the engine itself.
#include "engine/infer/replicas/remote_replica.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

#include "engine/infer/replicas/make_engine.h"
#include "engine/infer/scheduler/scheduler.h"
#include "tests/engine/infer/golden_requests.h"

namespace trimtab {
namespace {

using Answers = std::map<RequestId, std::vector<SampledToken>>;

/// Some want probabilities, some stop early.
GenerationRequest EveryKindOf(const GoldenWeights& weights, int64_t index) {
  GenerationRequest request = RequestOf(weights, index);
  request.sampling.log_probabilities = index % 3;
  const std::vector<int32_t> text = weights.Tokens(index % weights.sequences());
  if (index % 4 == 0) request.stop_tokens = {text[5], text[6]};
  return request;
}

Answers AnswerAll(const GoldenWeights& weights, Engine& engine, int64_t count) {
  Answers answers;
  for (int64_t i = 0; i < count || engine.HasWork(); ++i) {
    if (i < count) engine.AddRequest(EveryKindOf(weights, i));
    for (const RequestUpdate& update : engine.Step()) {
      for (const SampledToken& token : update.tokens) answers[update.id].push_back(token);
    }
  }
  return answers;
}

void ExpectSame(const Answers& answers, const Answers& expected) {
  ASSERT_EQ(answers.size(), expected.size());
  for (const auto& [id, tokens] : expected) {
    const std::vector<SampledToken>& answer = answers.at(id);
    ASSERT_EQ(answer.size(), tokens.size()) << id;
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(answer[i].id, tokens[i].id);
      EXPECT_EQ(answer[i].log_probability, tokens[i].log_probability);
      EXPECT_EQ(answer[i].likeliest, tokens[i].likeliest);
    }
  }
}

/// An engine that may share its work.
struct OwnEngine {
  OwnEngine(const ServingConfig& config, const WeightSource& weights, bool hands_over = false)
      : runner(config, weights), scheduler(Options(config, hands_over), runner, clock) {}

  static SchedulerOptions Options(const ServingConfig& config, bool hands_over) {
    return {.limits = config.limits,
            .block_size = config.block_size,
            .blocks = config.cache_blocks,
            .prefix_cache = config.prefix_cache,
            .hands_over = hands_over};
  }

  DistributedExecutor runner;
  SteadyClock clock;
  Scheduler scheduler;
};

/// Both ends of a link in this process; `serve` is what the far one does.
class RemoteReplicaTest : public testing::Test {
 protected:
  RemoteReplicaTest() {
    int ends[2] = {};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    near_ = Socket(ends[0]);
    far_ = Socket(ends[1]);
  }
  ~RemoteReplicaTest() override {
    remote_.reset();
    if (thread_.joinable()) thread_.join();
  }

  template <typename Serve>
  void Begin(Serve serve) {
    thread_ = std::thread([this, serve] {
      ReplicaLink link(std::move(far_), [] {});
      serve(link);
    });
  }
  RemoteReplica& Remote() {
    const auto own = std::make_shared<DistributedExecutor>(config_, weights_);
    remote_ = std::make_unique<RemoteReplica>(std::move(near_), own, config_.limits);
    return *remote_;
  }

  const GoldenWeights weights_{"qwen2"};
  const ServingConfig config_ = ResolveServing(GoldenServing(weights_));
  Socket near_;
  Socket far_;
  std::thread thread_;
  std::unique_ptr<RemoteReplica> remote_;
};

TEST_F(RemoteReplicaTest, AnswersAsItsEngine) {
  const Answers expected = AnswerAll(weights_, *MakeEngine(config_, weights_), 30);
  Begin([this](ReplicaLink& link) {
    OwnEngine engine(config_, weights_);
    AnswerOrders(link, engine.scheduler);
  });
  RemoteReplica& remote = Remote();
  const Answers answers = AnswerAll(weights_, remote, 30);
  ExpectSame(answers, expected);
  EXPECT_EQ(remote.metrics().finished_requests, 30);
  EXPECT_GT(remote.metrics().total_blocks, 0);
  EXPECT_EQ(remote.metrics().running + remote.metrics().waiting, 0);
}

TEST_F(RemoteReplicaTest, ForgetsWhatIsAborted) {
  Begin([this](ReplicaLink& link) {
    OwnEngine engine(config_, weights_);
    AnswerOrders(link, engine.scheduler);
  });
  RemoteReplica& remote = Remote();
  const auto add = [&](int64_t index) {
    return std::get<RequestId>(remote.AddRequest(EveryKindOf(weights_, index)));
  };
  EXPECT_FALSE(remote.HasWork());
  const RequestId running = add(1);
  EXPECT_EQ(remote.metrics().waiting, 1);
  remote.Step();
  EXPECT_EQ(remote.metrics().running, 1);
  const RequestId unsent = add(2);
  EXPECT_TRUE(remote.Abort(running));
  EXPECT_FALSE(remote.Abort(running));
  EXPECT_TRUE(remote.Abort(unsent));
  EXPECT_TRUE(remote.HasWork());
  EXPECT_TRUE(remote.Step().empty());
  EXPECT_FALSE(remote.HasWork());
  EXPECT_EQ(remote.metrics().aborted_requests, 2);
  EXPECT_EQ(remote.metrics().running + remote.metrics().waiting, 0);
  EXPECT_EQ(remote.metrics().used_blocks, 0);
}

// What one hands over another one, or the same behind its own link, goes on with.
TEST_F(RemoteReplicaTest, HandsOverAndTakesOver) {
  const Answers expected = AnswerAll(weights_, *MakeEngine(config_, weights_), 12);
  Begin([this](ReplicaLink& link) {
    OwnEngine engine(config_, weights_, /*hands_over=*/true);
    AnswerOrders(link, engine.scheduler);
  });
  RemoteReplica& first = Remote();
  OwnEngine near(config_, weights_);
  std::map<RequestId, RequestId> asked;  // by the id of who goes on
  Answers answers;
  const auto note = [&](const std::vector<RequestUpdate>& updates, bool moved) {
    for (const RequestUpdate& update : updates) {
      Answers::mapped_type& answer = answers[moved ? asked.at(update.id) : update.id];
      std::ranges::copy(update.tokens, std::back_inserter(answer));
    }
  };
  for (int64_t i = 0; i < 12; ++i) first.AddRequest(EveryKindOf(weights_, i));
  while (first.HasWork() || near.scheduler.HasWork()) {
    if (first.HasWork()) note(first.Step(), /*moved=*/false);
    for (TransferredSequence& each : first.TakePrefilled()) {
      const RequestId id = each.held.id;
      EXPECT_FALSE(first.Abort(id)) << "knows a sequence that has left";
      asked[near.scheduler.AddPrefilled(std::move(each))] = id;
    }
    if (near.scheduler.HasWork()) note(near.scheduler.Step(), /*moved=*/true);
    for (const PinnedBlocks& each : near.scheduler.TakeReleasable()) first.ReleaseBlocksOf(each.id);
  }
  ExpectSame(answers, expected);
  EXPECT_EQ(first.metrics().used_blocks, 0) << "blocks leak";
  EXPECT_GT(near.scheduler.metrics().moved_requests, 0);
}

TEST_F(RemoteReplicaTest, TakesOverWhatAnotherHasBegun) {
  const Answers expected = AnswerAll(weights_, *MakeEngine(config_, weights_), 1);
  Begin([this](ReplicaLink& link) {
    OwnEngine engine(config_, weights_);
    AnswerOrders(link, engine.scheduler);
  });
  RemoteReplica& second = Remote();
  OwnEngine first(config_, weights_, /*hands_over=*/true);
  first.scheduler.AddRequest(EveryKindOf(weights_, 0));
  std::vector<SampledToken> tokens;
  const auto note = [&tokens](const std::vector<RequestUpdate>& updates) {
    for (const RequestUpdate& each : updates) {
      std::ranges::copy(each.tokens, std::back_inserter(tokens));
    }
  };
  while (first.scheduler.HasWork()) note(first.scheduler.Step());
  std::vector<TransferredSequence> moved = first.scheduler.TakePrefilled();
  ASSERT_EQ(moved.size(), 1u);
  moved[0].held.engine = 7;
  const RequestId held = moved[0].held.id;
  second.AddPrefilled(std::move(moved[0]));
  std::vector<PinnedBlocks> copied;
  while (second.HasWork()) {
    note(second.Step());
    std::ranges::move(second.TakeReleasable(), std::back_inserter(copied));
  }
  ASSERT_EQ(copied.size(), 1u);
  EXPECT_EQ(copied[0].engine, 7);
  EXPECT_EQ(copied[0].id, held);
  ExpectSame({{expected.begin()->first, tokens}}, expected);
}

// Its blocks come back though nobody has copied them.
TEST_F(RemoteReplicaTest, ForgetsWhatIsAbortedWhenItIsReady) {
  Begin([this](ReplicaLink& link) {
    OwnEngine engine(config_, weights_, /*hands_over=*/true);
    AnswerOrders(link, engine.scheduler);
  });
  RemoteReplica& first = Remote();
  const auto id = std::get<RequestId>(first.AddRequest(EveryKindOf(weights_, 1)));
  while (first.HasWork()) first.Step();
  EXPECT_GT(first.metrics().used_blocks, 0);
  EXPECT_TRUE(first.Abort(id));
  EXPECT_FALSE(first.Abort(id));
  EXPECT_TRUE(first.TakePrefilled().empty());
  ASSERT_TRUE(first.HasWork());
  first.Step();
  EXPECT_EQ(first.metrics().used_blocks, 0);
  EXPECT_EQ(first.metrics().aborted_requests, 1);
  EXPECT_FALSE(first.HasWork());
}

TEST_F(RemoteReplicaTest, PassesOnWhyItsEngineEnds) {
  Begin([](ReplicaLink& link) { TellFailure(link, EnvironmentError("a wheel came off")); });
  try {
    Remote();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a wheel came off");
    EXPECT_EQ(error.code(), ExitCode::kEnvironment);
  }
}

TEST_F(RemoteReplicaTest, LongMessagesPassWhole) {
  const std::string sent(5'000'000, 'x');
  Begin([](ReplicaLink& link) {
    while (const auto message = link.Receive()) link.Send(*message);
  });
  {
    ReplicaLink link(std::move(near_), [] {});
    for (const std::string& message : {std::string(), sent, std::string("y")}) {
      link.Send(message);
      EXPECT_EQ(link.Receive(), message);
    }
  }
  thread_.join();
}

// Nobody is at the other end.
TEST_F(RemoteReplicaTest, AWaitEndsWhenItIsToldTo) {
  ReplicaLink link(std::move(near_), [] { throw EnvironmentError("enough"); });
  EXPECT_THROW(link.Receive(), EnvironmentError);
  EXPECT_THROW(link.Send(std::string(50'000'000, 'x')), EnvironmentError);
}

}  // namespace
}  // namespace trimtab
