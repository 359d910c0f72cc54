#include "cost_model/serving/validation/published_serving.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cost_model/serving/validation/serving_fit.h"
#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr char kRow[] = R"({
  "id": "one", "source": "somewhere", "kind": "served", "engine": "vllm", "engine_version": null,
  "model": "m", "gpu": "h100", "gpus_per_instance": 2, "tp": 2, "pp": 1, "ep": 1, "dp": null,
  "model_config": {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2,
                   "head_size": 16, "ffn_hidden_size": 96, "vocab_size": 100,
                   "activation": "swiglu", "tied_embeddings": false, "num_experts": 0,
                   "experts_per_token": 0},
  "weight_precision": "fp8", "kv_precision": null, "input_tokens": 100, "output_tokens": 50,
  "batch": null, "concurrency": 8, "metrics": {"tpot_ms_mean": 12.5, "ttft_ms": 30.0},
  "notes": "lengths uniform in 0.8..1.0 of nominal"})";

std::vector<PublishedServing> Read(const json& rows) {
  return ReadPublishedServing(rows, "rows.json");
}

std::string RefusalOf(const json& row) {
  try {
    Read(json::array({row}));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(PublishedServing, ReadsWhatIsTold) {
  const json row = json::parse(kRow);
  EXPECT_TRUE(IsPublishedServing(json::array({row})));
  const PublishedServing read = Read(json::array({row})).at(0);
  EXPECT_EQ(read.kind, ServingKind::kServed);
  EXPECT_EQ(read.dp, 1);
  EXPECT_EQ(read.concurrency, 8);
  EXPECT_DOUBLE_EQ(read.tpot_s, 0.0125);
  EXPECT_DOUBLE_EQ(read.mean_length, 0.9);
  EXPECT_EQ(read.model.num_kv_heads, 2);
  EXPECT_EQ(read.Group(), "m vllm h100 x2");
}

TEST(PublishedServing, ReadsLatentAttention) {
  json row = json::parse(kRow);
  json& model = row["model_config"];
  model.update({{"attention", "mla"},
                {"q_lora_rank", nullptr},
                {"kv_lora_rank", 32},
                {"qk_nope_head_size", 16},
                {"qk_rope_head_size", 8},
                {"v_head_size", 16},
                {"head_size", nullptr}});
  const PublishedServing read = Read(json::array({row})).at(0);
  EXPECT_EQ(read.unsupported, "");
  EXPECT_EQ(read.model.latent.kv_lora_rank, 32);
  EXPECT_EQ(read.model.head_size(), 24);
  EXPECT_EQ(read.model.num_kv_heads, 4);
  EXPECT_FALSE(read.wide_latent);
  row["notes"] = "NVFP4 experts and part of the dense layers; MLA down and up projections in bf16";
  EXPECT_TRUE(Read(json::array({row})).at(0).wide_latent);
  row["notes"] = "NVFP4 experts; attention in bf16";
  EXPECT_FALSE(Read(json::array({row})).at(0).only_experts);  // it has none
  model["qk_norm"] = true;
  EXPECT_NE(Read(json::array({row})).at(0).unsupported, "");
  model.erase("kv_lora_rank");
  EXPECT_NE(RefusalOf(row).find("$[0].model_config.kv_lora_rank"), std::string::npos);
}

TEST(PublishedServing, NamesRowAndPathOfWhatIsWrong) {
  struct Fault {
    json::json_pointer field;
    json value;
    const char* message;
  };
  const Fault faults[] = {
      {"/tp"_json_pointer, "two", "rows.json: one: $[0].tp"},
      {"/tp"_json_pointer, 4, "$[0].gpus_per_instance: expected tp x pp x dp = 4, got 2"},
      {"/kind"_json_pointer, "batch", "$[0].kind"},
      {"/weight_precision"_json_pointer, "fp7", "$[0].weight_precision"},
      {"/concurrency"_json_pointer, nullptr, "$[0].concurrency"},
      {"/metrics/tpot_ms_mean"_json_pointer, 0, "$[0].metrics.tpot_ms_mean"},
      {"/metrics/tpot_ms"_json_pointer, 3, "$[0].metrics.tpot_ms"},
      {"/model_config/num_layer"_json_pointer, 3, "$[0].model_config.num_layer"},
      {"/model_config/activation"_json_pointer, "relu", "$[0].model_config.activation"},
      {"/model_config/num_experts"_json_pointer, 8, "$[0].model_config.experts_per_token"},
      {"/model_config/sliding_window_layers"_json_pointer, "some",
       "$[0].model_config.sliding_window_layers"},
      {"/ttft"_json_pointer, 3, "$[0].ttft"},
  };
  EXPECT_EQ(RefusalOf(json::parse(kRow)), "");
  for (const Fault& fault : faults) {
    json row = json::parse(kRow);
    row[fault.field] = fault.value;
    EXPECT_NE(RefusalOf(row).find(fault.message), std::string::npos) << fault.message << "\n"
                                                                     << RefusalOf(row);
  }
  EXPECT_THROW(Read(json::array({json::parse(kRow), json::parse(kRow)})), InputError);
  EXPECT_THROW(Read(json::array({json::parse(kRow), 3})), InputError);
}

// A sample of published rows of every kind. Whole factors would show a mistake.
TEST(PublishedServing, IsPredicted) {
  const std::string path = "testdata/published/serving.json";
  const ServingCases taken = TakeServing(ReadPublishedServing(ReadJsonFile(path), path));
  ASSERT_GE(taken.cases.size(), 10u);
  EXPECT_TRUE(taken.skipped.empty());
  const ServingNumbers numbers = BuiltinNumbers(taken.cases);
  double sum = 0;
  for (const ServingCase& each : taken.cases) {
    EXPECT_TRUE(each.plan.fits) << each.row.id;
    const double error = std::abs(ErrorOf(each, numbers));
    EXPECT_LT(error, 0.35) << each.row.id;
    sum += error;
    if (each.row.kind != ServingKind::kServed) continue;
    EXPECT_EQ(WaitedForRoom(each, numbers.gpu(each.profile->generation),
                            numbers.engine(each.engine->name)),
              each.plan.waits_for_room)
        << each.row.id;
  }
  EXPECT_LT(sum / static_cast<double>(taken.cases.size()), 0.11);
}

/// A row of many clients, whose first tokens come so late.
json LateRow(const char* id, int64_t concurrency, double ttft_ms) {
  json row = json::parse(kRow);
  row["id"] = id;
  row["input_tokens"] = 1000;
  row["output_tokens"] = 1000;
  row["concurrency"] = concurrency;
  row["metrics"] = {{"tpot_ms_mean", 12.5}, {"ttft_ms", ttft_ms}};
  return row;
}

// What a cache held in one row it has room for in others, whatever made their first tokens late.
TEST(WaitedForRoom, NotWhereTheInstanceHeldAsMuchInAnotherRow) {
  const auto waited = [](const json& rows) {
    const ServingCases taken = TakeServing(Read(rows));
    const ServingNumbers numbers = BuiltinNumbers(taken.cases);
    std::vector<bool> result;
    for (const ServingCase& each : taken.cases) {
      result.push_back(WaitedForRoom(each, numbers.gpu(each.profile->generation),
                                     numbers.engine(each.engine->name)));
    }
    return result;
  };
  const json late = LateRow("late", 64, 9000);
  EXPECT_EQ(waited(json::array({late})), std::vector({true}));
  EXPECT_EQ(waited(json::array({late, LateRow("more", 128, 100)})), std::vector({false, false}));
  // Of 128 clients some wait themselves: 11.25 s of 20.25 are past the first token.
  EXPECT_EQ(waited(json::array({late, LateRow("more", 128, 9000)})), std::vector({false, true}));
  EXPECT_EQ(waited(json::array({late, LateRow("no more", 64, 100)})), std::vector({true, false}));
  json other = LateRow("other", 128, 100);
  other["engine_version"] = "0.15";
  EXPECT_EQ(waited(json::array({late, other})), std::vector({true, false}));
}

// Where a source does not tell: a checkpoint in nvfp4 has scales for its cache, one in fp8 for one
// engine.
TEST(ServingCase, TakesTheCacheOfTheCheckpoint) {
  const auto kv_bytes = [](const char* engine, const char* weights) {
    json row = json::parse(kRow);
    row["engine"] = engine;
    row["weight_precision"] = weights;
    row["gpu"] = "b200";
    const ServingCases taken = TakeServing(Read(json::array({row})));
    return taken.cases.at(0).layout.kv_bytes;
  };
  EXPECT_EQ(kv_bytes("vllm", "nvfp4"), 1);
  EXPECT_EQ(kv_bytes("tensorrt-llm", "nvfp4"), 1);
  EXPECT_EQ(kv_bytes("vllm", "fp8"), 2);
  EXPECT_EQ(kv_bytes("tensorrt-llm", "fp8"), 1);
  EXPECT_EQ(kv_bytes("vllm", "bf16"), 2);
}

// Rows made of other numbers: the fit finds times like them again, within what a prior allows.
TEST(ServingFit, FollowsRows) {
  const std::string path = "testdata/published/serving.json";
  ServingCases taken = TakeServing(ReadPublishedServing(ReadJsonFile(path), path));
  ServingNumbers slower = NumbersAtPriors(taken.cases);
  for (ServingGpu& gpu : slower.gpus) gpu.weight_bandwidth.value *= 0.9;
  for (ServingEngine& engine : slower.engines) engine.prompt_layer_s.value *= 1.5;
  std::vector<const ServingCase*> cases;
  for (ServingCase& each : taken.cases) {
    each.measured_s =
        PriceCase(each, slower.gpu(each.profile->generation), slower.engine(each.engine->name))
            .seconds();
    cases.push_back(&each);
  }
  const ServingNumbers priors = NumbersAtPriors(taken.cases);
  const ServingNumbers fitted = FitServing(cases, priors);
  double before = 0;
  double after = 0;
  for (const ServingCase* each : cases) {
    before += std::abs(ErrorOf(*each, priors));
    after += std::abs(ErrorOf(*each, fitted));
  }
  EXPECT_LT(after, 0.4 * before);
}

}  // namespace
}  // namespace trimtab
