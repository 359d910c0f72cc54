#include "engine/config/run/run_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "tests/engine/config/error_text.h"
#include "tests/engine/config/json_changes.h"

namespace trimtab {
namespace {

RunConfig EverythingSet() {
  return {.model = LoadModelConfig("llama-tiny"),
          .layout = {.tp = 2,
                     .dp = 3,
                     .micro_batch = 2,
                     .numerics = {.precision = Precision::kFp8,
                                  .master = MasterWeights::kRemainder,
                                  .moments = DType::kBf16,
                                  .gradients = DType::kBf16}},
          .optimizer = {.learning_rate = 0.1,
                        .min_learning_rate = 0.03,
                        .beta1 = 0.8,
                        .beta2 = 0.99,
                        .epsilon = 1e-7,
                        .weight_decay = 0.01,
                        .clip_grad = 0,
                        .warmup_steps = 3,
                        .decay_steps = 1000,
                        .groups = {{.match = {"*.bias", "decoder.layers.[0-3].*"},
                                    .learning_rate_factor = 0.5,
                                    .weight_decay = true},
                                   {.match = {"output_layer.*"}}}},
          .frozen = {"embedding.*", "*.bias"},
          .fp8 = {.scaling = "current",
                  .history = 4,
                  .bf16_layers = {"decoder.layers.0"},
                  .fast_gradients = true},
          .loss_scale = {.initial = 1024, .minimum = 2, .growth_interval = 7},
          .routing = {.force_balance = true, .imbalance_factor = 1.25},
          .packing = {.mask = AttentionMask::kDocuments, .lengths = {{.tokens = 7, .weight = 0.5}}},
          .deterministic = true,
          .device = DeviceKind::kCuda,
          .global_batch = 12,
          .sequence_length = 64,
          .steps = 5,
          .seed = UINT64_MAX,
          .threads_per_rank = 2,
          .memory_per_rank_bytes = int64_t{1} << 40,
          .data = "some/prefix",
          .stack = "nemo"};
}

TEST(RunConfig, JsonRoundTrips) {
  const RunConfig run = EverythingSet();
  EXPECT_EQ(RunConfigFromJson(ToJson(run), "f: $"), run);
  EXPECT_EQ(RunConfigFromJson(nlohmann::json::parse(ToJson(run).dump()), "f: $"), run);
}

TEST(RunConfig, EveryValueIsReadWrittenAndCompared) {
  const std::map<std::string, nlohmann::json> words = {
      {"/layout/cp_comm_type", "all_gather"},
      {"/layout/stages", "1+2"},
      {"/layout/dispatch", "allgather"},
      {"/layout/schedule", "gpipe"},
      {"/layout/recompute", "full"},
      {"/layout/precision", "bf16"},
      {"/layout/master", "fp32"},
      {"/layout/moments", "fp16"},
      {"/layout/grads", "fp32"},
      {"/optimizer/kind", "muon"},
      {"/fp8/scaling", "delayed"},
      {"/packing/mask", "causal"},
      {"/routing/imbalance_factor", 1.5},
      {"/device", "cpu"},
  };
  const RunConfig run = EverythingSet();
  for (const JsonChange& change : JsonChanges(ToJson(run), words)) {
    if (change.path == "/schema_version" || change.path.starts_with("/model/")) continue;
    const RunConfig changed = RunConfigFromJson(change.json, change.path);
    EXPECT_FALSE(changed == run) << change.path;
    EXPECT_EQ(ToJson(changed), change.json) << change.path;
  }
}

// A rate that is given scales the minimum that is not.
TEST(RunConfig, ARateAloneScalesItsDefaultMinimum) {
  const auto optimizer = [](const std::string& text) {
    nlohmann::json json = {{"model", "gpt2-10m"}, {"global_batch", 8}, {"sequence_length", 64}};
    json["optimizer"] = nlohmann::json::parse(text);
    return RunConfigFromJson(json, "f: $").optimizer;
  };
  EXPECT_EQ(optimizer("{}"), OptimizerConfig{});
  EXPECT_EQ(optimizer(R"({"learning_rate": 1e-5})").min_learning_rate, 1e-6);
  EXPECT_EQ(optimizer(R"({"learning_rate": 1e-3})").min_learning_rate, 1e-4);
  EXPECT_EQ(optimizer(R"({"learning_rate": 0})").min_learning_rate, 0);
  EXPECT_EQ(optimizer(R"({"learning_rate": 1e-3, "min_learning_rate": 2e-6})").min_learning_rate,
            2e-6);
  OptimizerConfig scaled;
  scaled.ScaleTo(1e-3);
  EXPECT_EQ(scaled, optimizer(R"({"learning_rate": 1e-3})")) << "as --lr scales it";
}

TEST(RunConfig, GroupsOfParametersAreCheckedOneByOne) {
  const auto message = [](const std::string& text) {
    nlohmann::json json = {{"model", "gpt2-10m"}, {"global_batch", 8}, {"sequence_length", 64}};
    json["optimizer"]["groups"] = nlohmann::json::parse(text);
    return ErrorText<InputError>([&] { RunConfigFromJson(json, "f: $"); });
  };
  EXPECT_EQ(message("{}"),
            "f: $.optimizer.groups: expected an array of groups of parameters, got an object");
  EXPECT_EQ(message(R"([{"match": ["*"]}, {}])"),
            "f: $.optimizer.groups[1].match: required, but missing");
  EXPECT_EQ(message(R"([{"match": []}])"),
            "f: $.optimizer.groups[0].match: expected at least one pattern of parameter names, got "
            "an array of 0");
  EXPECT_EQ(message(R"([{"match": [7]}])"),
            "f: $.optimizer.groups[0].match[0]: expected a pattern of parameter names, got 7");
  EXPECT_EQ(message(R"([{"match": ["*"], "weight_decay": 0.1}])"),
            "f: $.optimizer.groups[0].weight_decay: expected true or false, got 0.1");
}

TEST(RunConfig, MicroBatchesPerStep) { EXPECT_EQ(EverythingSet().num_micro_batches(), 2); }

}  // namespace
}  // namespace trimtab
