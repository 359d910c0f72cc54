// An engine behind a link answers as the engine itself.
#include "engine/infer/remote_replica.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "engine/infer/make_engine.h"
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
    const auto own = std::make_shared<RankRunner>(config_, weights_);
    remote_ = std::make_unique<RemoteReplica>(std::move(near_), own, config_.limits);
    return *remote_;
  }

  const GoldenWeights weights_{"qwen2"};
  const ServingConfig config_ = GoldenServing(weights_);
  Socket near_;
  Socket far_;
  std::thread thread_;
  std::unique_ptr<RemoteReplica> remote_;
};

TEST_F(RemoteReplicaTest, AnswersAsItsEngine) {
  const Answers expected = AnswerAll(weights_, *MakeEngine(config_, weights_), 30);
  Begin([this](ReplicaLink& link) { AnswerOrders(link, *MakeEngine(config_, weights_)); });
  RemoteReplica& remote = Remote();
  const Answers answers = AnswerAll(weights_, remote, 30);
  ASSERT_EQ(answers.size(), expected.size());
  for (const auto& [id, tokens] : expected) {
    ASSERT_EQ(answers.at(id).size(), tokens.size()) << id;
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(answers.at(id)[i].id, tokens[i].id);
      EXPECT_EQ(answers.at(id)[i].log_probability, tokens[i].log_probability);
      EXPECT_EQ(answers.at(id)[i].likeliest, tokens[i].likeliest);
    }
  }
  EXPECT_EQ(remote.metrics().finished_requests, 30);
  EXPECT_GT(remote.metrics().total_blocks, 0);
  EXPECT_EQ(remote.metrics().running + remote.metrics().waiting, 0);
}

TEST_F(RemoteReplicaTest, ForgetsWhatIsAborted) {
  Begin([this](ReplicaLink& link) { AnswerOrders(link, *MakeEngine(config_, weights_)); });
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
