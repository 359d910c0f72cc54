// Tensor parallelism whose messages overlap with products trains to the losses of one rank.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/config/rules/rules.h"
#include "engine/runtime/ranks.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 5;

std::vector<std::string> EveryLayout() {
  std::vector<std::string> layouts;
  for (const char* ranks :
       {"tp=2", "tp=2,sp=1", "tp=4", "tp=4,sp=1", "tp=2,sp=1,recompute=full",
        "tp=2,sp=1,recompute=selective:core_attn+layernorm+mlp_act",
        "tp=2,recompute=selective:mlp+logits", "tp=2,sp=1,dp=2", "tp=2,sp=1,dp=2,zero=2",
        "tp=2,sp=1,dp=2,zero=3", "pp=2,tp=2,sp=1", "pp=2,tp=2,sp=1,schedule=zero-bubble",
        "pp=2,tp=2,schedule=zero-bubble", "pp=2,tp=2,sp=1,dp=2,zero=3,schedule=zero-bubble"}) {
    for (const int chunks : {2, 3}) {
      layouts.push_back(fmt::format("{},mbs=2,tp_overlap_chunks={}", ranks, chunks));
    }
  }
  return layouts;
}

std::string CaseName(const std::string& text) {
  std::string name = text;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

class TpOverlapTest : public testing::TestWithParam<std::tuple<bool, std::string>> {};

TEST_P(TpOverlapTest, TrainsLikeOneRank) {
  const auto& [llama, layout] = GetParam();
  RunConfig run = SmallRun(llama);
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  const TrainedLosses expected = TrainOnRanks(run, *source, kSteps);
  run.layout = ParseLayout(layout, 0);
  const Rule* broken = FirstBrokenRule(run);
  ASSERT_EQ(broken, nullptr) << broken->id;
  ExpectSameTraining(TrainOnRanks(run, *source, kSteps), expected, /*tolerance=*/1e-5);
}

INSTANTIATE_TEST_SUITE_P(Layouts, TpOverlapTest,
                         testing::Combine(testing::Bool(), testing::ValuesIn(EveryLayout())),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) ? "llama_" : "gpt2_") +
                                  CaseName(std::get<1>(test.param));
                         });

// As nearly as 16-bit roundings let them; see precision_layout_test.
TEST(TpOverlapPrecision, TrainsLikeOneRank) {
  for (const auto& [precision, tolerance] :
       {std::pair{"precision=bf16", 6e-3},
        {"precision=bf16,master=remainder,moments=bf16,grads=bf16", 6e-3},
        {"precision=fp16", 1.5e-3}}) {
    for (const char* layout : {"tp=2,mbs=4,tp_overlap_chunks=4,",
                               "tp=2,sp=1,mbs=4,"
                               "tp_overlap_chunks=4,"}) {
      SCOPED_TRACE(std::string(layout) + precision);
      RunConfig run = SmallRun(/*llama=*/true);
      const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
      run.layout = ParseLayout(std::string("mbs=4,") + precision, 0);
      const TrainedLosses expected = TrainOnRanks(run, *source, kSteps);
      run.layout = ParseLayout(std::string(layout) + precision, 0);
      const TrainedLosses actual = TrainOnRanks(run, *source, kSteps);
      for (size_t step = 0; step < kSteps; ++step) {
        EXPECT_NEAR(actual.losses[step], expected.losses[step], tolerance * expected.losses[step]);
      }
    }
  }
}

/// Fails when the `count`th asynchronous message of tensor parallelism is submitted.
class FailingListener final : public Recorder {
 public:
  explicit FailingListener(int count) : left_(count) {}

  void BeginOp(const OpRecord&) override {}
  void BeginComm(const CommRecord& message) override {
    if (message.group == GroupKind::kTensor && message.asynchronous() && --left_ == 0) {
      throw StorageError("the disk is full");
    }
  }
  void BeginWait(const CommRecord&) override {}
  void End() override {}

 private:
  int left_;
};

TEST(TpOverlapFailure, EndsAllRanksWithItsCause) {
  for (const char* layout :
       {"tp=4,sp=1,mbs=2,tp_overlap_chunks=3", "tp=4,mbs=2,tp_overlap_chunks=3"}) {
    for (const int count : {1, 2, 5, 40}) {
      SCOPED_TRACE(fmt::format("{} message {}", layout, count));
      RunConfig run = SmallRun(/*llama=*/false);
      run.layout = ParseLayout(layout, 0);
      const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
      const auto train = [&] {
        RunRanks(run, [&](Rank& rank) {
          FailingListener listener(count);
          Trainer trainer(run, rank.parallel(), rank.device());
          if (rank.index() == 2) rank.device().set_recorder(&listener);
          for (int64_t step = 0; step < 3; ++step) trainer.Step(*source, step);
        });
      };
      EXPECT_THROW(train(), StorageError);
    }
  }
}

}  // namespace
}  // namespace trimtab
