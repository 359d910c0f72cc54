#include "engine/train/continuation.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

constexpr const char* kTokens = "synthetic tokens";

RunConfig PlainRun(const std::string& layout = "mbs=2") {
  RunConfig run;
  run.model = LoadModelConfig("llama-tiny");
  run.layout = ParseLayout(layout, 0);
  run.global_batch = 8;
  run.sequence_length = 16;
  run.steps = 100;
  return run;
}

/// A run with experts, whose layers have settings of their own that only training reads.
RunConfig ExpertRun() {
  RunConfig run = PlainRun();
  run.model.moe.num_experts = 4;
  run.model.moe.ffn_hidden_size = 16;
  return run;
}

CheckpointHeader Saved(const RunConfig& run, int64_t step = 50) {
  return {.run = run, .step = step, .samples = step * run.global_batch, .tokens = kTokens};
}

std::vector<std::string> KeysOf(const std::vector<ResultChange>& changes) {
  std::vector<std::string> keys;
  for (const ResultChange& change : changes) keys.push_back(change.key);
  return keys;
}

struct Case {
  const char* key;
  std::function<void(RunConfig& run)> change;
  const char* layout = "mbs=2";
};

// Every setting that changes results, one at a time.
TEST(Continuation, TellsOfEverySettingThatChangesResults) {
  const Case cases[] = {
      {"optimizer.min_learning_rate", [](RunConfig& r) { r.optimizer.min_learning_rate = 1e-6; }},
      {"optimizer.learning_rate", [](RunConfig& r) { r.optimizer.learning_rate = 1e-3; }},
      {"optimizer.warmup_steps", [](RunConfig& r) { r.optimizer.warmup_steps = 20; }},
      {"optimizer.decay_steps", [](RunConfig& r) { r.optimizer.decay_steps = 70; }},
      {"steps", [](RunConfig& r) { r.steps = 200; }},
      {"optimizer.beta1", [](RunConfig& r) { r.optimizer.beta1 = 0.8; }},
      {"optimizer.beta2", [](RunConfig& r) { r.optimizer.beta2 = 0.99; }},
      {"optimizer.epsilon", [](RunConfig& r) { r.optimizer.epsilon = 1e-6; }},
      {"optimizer.weight_decay", [](RunConfig& r) { r.optimizer.weight_decay = 0; }},
      {"optimizer.clip_grad", [](RunConfig& r) { r.optimizer.clip_grad = 0; }},
      {"global_batch", [](RunConfig& r) { r.global_batch = 16; }},
      {"sequence_length", [](RunConfig& r) { r.sequence_length = 8; }},
      {"seed", [](RunConfig& r) { r.seed = 5; }},
      {"layout.precision", [](RunConfig& r) { r.layout.numerics.precision = Precision::kTf32; }},
      {"layout.master", [](RunConfig& r) { r.layout.numerics.master = MasterWeights::kRemainder; },
       "mbs=2,precision=bf16"},
      {"layout.moments", [](RunConfig& r) { r.layout.numerics.moments = DType::kBf16; },
       "mbs=2,precision=bf16"},
      {"layout.grads", [](RunConfig& r) { r.layout.numerics.gradients = DType::kBf16; },
       "mbs=2,precision=bf16"},
      {"fp8.scaling", [](RunConfig& r) { r.fp8.scaling = "current"; }, "mbs=2,precision=fp8"},
      {"fp8.history", [](RunConfig& r) { r.fp8.history = 4; }, "mbs=2,precision=fp8"},
      {"fp8.bf16_layers", [](RunConfig& r) { r.fp8.bf16_layers = {"decoder.layers.0"}; },
       "mbs=2,precision=fp8"},
      {"fp8.fast_gradients", [](RunConfig& r) { r.fp8.fast_gradients = true; },
       "mbs=2,precision=fp8"},
      {"loss_scale.growth_interval", [](RunConfig& r) { r.loss_scale.growth_interval = 7; },
       "mbs=2,precision=fp16"},
  };
  for (const Case& each : cases) {
    const RunConfig before = PlainRun(each.layout);
    RunConfig now = before;
    each.change(now);
    EXPECT_EQ(KeysOf(ChangesSince(Saved(before), now, kTokens)),
              std::vector<std::string>{each.key});
    EXPECT_EQ(ChangesSince(Saved(before), before, kTokens), std::vector<ResultChange>{});
  }
}

TEST(Continuation, TellsOfWhatRoutersAreTrainedWith) {
  const Case cases[] = {
      {"model.moe.aux_loss_coeff", [](RunConfig& r) { r.model.moe.aux_loss_coeff = 0.01; }},
      {"model.moe.z_loss_coeff", [](RunConfig& r) { r.model.moe.z_loss_coeff = 0.01; }},
      {"model.moe.bias_update_rate", [](RunConfig& r) { r.model.moe.bias_update_rate = 0.01; }},
      {"model.moe.capacity_factor", [](RunConfig& r) { r.model.moe.capacity_factor = 1; }},
      {"routing.force_balance", [](RunConfig& r) { r.routing.force_balance = true; }},
  };
  for (const Case& each : cases) {
    RunConfig now = ExpertRun();
    each.change(now);
    EXPECT_EQ(KeysOf(ChangesSince(Saved(ExpertRun()), now, kTokens)),
              std::vector<std::string>{each.key});
  }
}

TEST(Continuation, PassesOverWhatChangesNoResult) {
  RunConfig now = PlainRun("tp=2,sp=1,pp=2,dp=2,zero=1,mbs=1,recompute=full,schedule=gpipe");
  now.device = DeviceKind::kCuda;
  now.deterministic = true;
  now.threads_per_rank = 3;
  now.memory_per_rank_bytes = 1 << 30;
  now.data = "elsewhere/with the same content";
  now.model.name = "renamed";
  now.model.init_std = 0.5;
  now.fp8.history = 3;
  now.loss_scale.growth_interval = 3;
  now.routing.imbalance_factor = 2;
  now.routing.force_balance = true;
  EXPECT_EQ(KeysOf(ChangesSince(Saved(PlainRun()), now, kTokens)), std::vector<std::string>{});
  now = ExpertRun();
  now.routing.imbalance_factor = 2;
  EXPECT_EQ(KeysOf(ChangesSince(Saved(ExpertRun()), now, kTokens)), std::vector<std::string>{});
}

TEST(Continuation, KnowsDataByItsContent) {
  RunConfig run = PlainRun();
  run.data = "d";
  EXPECT_EQ(ChangesSince(Saved(run), run, "others"),
            (std::vector<ResultChange>{{"data", "d (synthetic tokens)", "d (others)"}}));
  EXPECT_EQ(ChangesSince(Saved(PlainRun()), run, "others"),
            (std::vector<ResultChange>{{"data", "synthetic tokens", "d (others)"}}));
}

TEST(Continuation, UnknownDataAreNotCompared) {
  CheckpointHeader from = Saved(PlainRun());
  from.tokens.clear();
  EXPECT_EQ(ChangesSince(from, PlainRun(), kTokens), std::vector<ResultChange>{});
  testing::internal::CaptureStderr();
  EXPECT_TRUE(RequireContinuation(from, "c", PlainRun(), kTokens, {}).empty());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("c: its data are unknown"),
            std::string::npos);
}

// One number of steps that says where to stop, another one to which the rate falls.
TEST(Continuation, ALongerRunOfTheSameScheduleIsNoChange) {
  RunConfig part = PlainRun();
  part.optimizer.decay_steps = 200;
  RunConfig whole = PlainRun();
  whole.steps = 200;
  EXPECT_EQ(ChangesSince(Saved(part), whole, kTokens), std::vector<ResultChange>{});
  whole.steps = 201;
  EXPECT_EQ(ChangesSince(Saved(part), whole, kTokens),
            (std::vector<ResultChange>{{"steps", "200", "201"}}));
}

TEST(Continuation, AScheduleWithoutAnotherRateToComeMayGoOn) {
  RunConfig constant = PlainRun();
  constant.optimizer.min_learning_rate = constant.optimizer.learning_rate;
  RunConfig longer = constant;
  longer.steps = 1000;
  longer.optimizer.warmup_steps = 5;
  EXPECT_EQ(ChangesSince(Saved(constant), longer, kTokens), std::vector<ResultChange>{});
  EXPECT_EQ(KeysOf(ChangesSince(Saved(constant, 3), longer, kTokens)),
            (std::vector<std::string>{"optimizer.warmup_steps", "steps"}))
      << "in the warm-up";
  RunConfig past_end = PlainRun();
  past_end.steps = 300;
  past_end.optimizer.decay_steps = 100;
  EXPECT_EQ(ChangesSince(Saved(PlainRun(), 100), past_end, kTokens), std::vector<ResultChange>{});
  RunConfig other = past_end;
  other.optimizer.learning_rate = 1;
  other.optimizer.decay_steps = 90;
  EXPECT_EQ(ChangesSince(Saved(past_end, 200), other, kTokens), std::vector<ResultChange>{});
}

TEST(Continuation, WithoutAStepLeftNothingChanges) {
  RunConfig shorter = PlainRun();
  shorter.steps = 50;
  EXPECT_EQ(ChangesSince(Saved(PlainRun()), shorter, kTokens), std::vector<ResultChange>{});
}

TEST(Continuation, RefusesWhatIsNotAskedForByName) {
  const CheckpointHeader from = Saved(PlainRun());
  RunConfig now = PlainRun();
  now.steps = 200;
  now.optimizer.beta2 = 0.99;
  const auto refused = [&](std::vector<std::string> overrides) {
    testing::internal::CaptureStderr();
    const std::string said =
        MessageOf<UsageError>([&] { RequireContinuation(from, "c", now, kTokens, overrides); });
    return std::pair(said, testing::internal::GetCapturedStderr());
  };
  const auto [said, lines] = refused({});
  EXPECT_EQ(said,
            "c: this run would not continue the one that saved it: steps, beta2 changed "
            "(--schedule-steps 100 keeps the schedule); expected the same, or --override "
            "steps,beta2");
  EXPECT_NE(lines.find("c: steps is 100 in the checkpoint, 200 in this run\n"), std::string::npos);
  EXPECT_NE(lines.find("c: beta2 is 0.95 in the checkpoint, 0.99 in this run\n"),
            std::string::npos);
  EXPECT_TRUE(refused({"steps"}).first.ends_with("--override beta2"));
  EXPECT_TRUE(refused({"optimizer.beta2"}).first.ends_with("--override steps"));
  EXPECT_EQ(refused({"stepz"}).first,
            "--override stepz: no setting that changes results; did you mean 'steps'?");
  EXPECT_NE(refused({"tp"}).first.find("--override tp: no setting"), std::string::npos);
  for (const char* length : {"steps", "decay_steps", "optimizer.decay_steps"}) {
    const std::vector<std::string> overrides = {length, "beta2", "seed"};
    EXPECT_EQ(RequireContinuation(from, "c", now, kTokens, overrides).size(), 2u) << length;
  }
}

}  // namespace
}  // namespace trimtab
