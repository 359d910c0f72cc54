#include "cost_model/validation/published_run.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr char kRow[] = R"({
  "id": "one", "family": "f", "year": 2023, "framework": "NeMo 24.07",
  "source": {"key": "somewhere", "title": "a table", "where": "a page"},
  "model": {"name": "m", "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 4, "head_dim": 16,
            "ffn": 256, "ffn_kind": "gelu", "vocab": 100, "seq": 32, "tied_embeddings": true,
            "experts": null, "topk": null},
  "hardware": {"gpu": "H100-SXM", "mem_gb": 80, "gpus": 2, "gpus_per_node": 8,
               "inter_gbit_s_per_gpu": null},
  "layout": {"tp": 1, "pp": 1, "vp": 1, "cp": 1, "ep": 1, "dp": 2, "sp": false, "zero_stage": 1},
  "mbs": 1, "gbs": 4, "recompute": "none", "precision": "bf16",
  "measured": {"step_time_s": 0.5, "tokens_per_s_per_gpu": null, "tflops_per_gpu": null},
  "complete": true, "missing": [], "blockers": [], "simulatable": true})";

class PublishedRunFile : public testing::Test {
 protected:
  PublishedRuns Read(const json& rows) const {
    std::ofstream(path_) << rows.dump();
    return ReadPublishedRuns(path_);
  }
  std::string Refusal(const json& row) const {
    try {
      Read(json::array({row}));
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  const std::string path_ = testing::TempDir() + "/published.json";
  json row_ = json::parse(kRow);
};

TEST_F(PublishedRunFile, ReadsWhatIsToldAndTakesNullForNothing) {
  const PublishedRun run = Read(json::array({row_})).runs.at(0);
  EXPECT_EQ(run.source, "somewhere");
  EXPECT_EQ(run.model.hidden, 64);
  EXPECT_EQ(run.model.experts, 0);
  EXPECT_EQ(run.hardware.network_gbit_per_s, 0);
  EXPECT_EQ(run.hardware.memory_bytes, 80e9);
  EXPECT_EQ(run.Incomplete(), "");
  EXPECT_NEAR(run.Release(), 2024 + 6.5 / 12, 1e-9);
  EXPECT_DOUBLE_EQ(run.TokensPerSecondPerGpu(1), 4 * 32 / 0.5 / 2);
}

TEST_F(PublishedRunFile, SaysWhichFactsOfTheLayoutAreNotTold) {
  const auto why = [&](const char* key, int64_t tp = 1) {
    json row = row_;
    row["layout"]["tp"] = tp;
    row["layout"][key] = nullptr;
    return Read(json::array({row})).runs.at(0).Incomplete();
  };
  EXPECT_EQ(why("zero_stage"), "not told: layout.zero_stage");
  EXPECT_EQ(why("pp"), "not told: layout.pp");
  EXPECT_EQ(why("sp", 2), "not told: layout.sp");
  EXPECT_EQ(why("sp"), "") << "of one rank there is nothing to tell";
  EXPECT_EQ(why("dp"), "") << "all ranks that are left";
  json row = row_;
  row["layout"]["dp"] = nullptr;
  EXPECT_EQ(Read(json::array({row})).runs.at(0).layout.dp, 2);
  row["framework"] = "NeMo v25.05";
  EXPECT_NEAR(Read(json::array({row})).runs.at(0).Release(), 2025 + 4.5 / 12, 1e-9);
  row["framework"] = "NeMo";
  row["year"] = nullptr;
  EXPECT_EQ(Read(json::array({row})).runs.at(0).Release(), 0);
}

TEST_F(PublishedRunFile, NamesRowAndPathOfAWrongField) {
  json bad = row_;
  bad["layout"]["tp"] = "two";
  EXPECT_NE(Refusal(bad).find("one: $[0].layout.tp"), std::string::npos) << Refusal(bad);
  bad = row_;
  bad["measured"].erase("step_time_s");
  bad["measured"]["step_tims_s"] = 1;
  EXPECT_NE(Refusal(bad).find("$[0].measured.step_tims_s"), std::string::npos) << Refusal(bad);
  bad = row_;
  bad.erase("model");
  EXPECT_NE(Refusal(bad).find("$[0].model"), std::string::npos) << Refusal(bad);
  bad = row_;
  bad["recompute"] = 1;
  EXPECT_NE(Refusal(bad).find("$[0].recompute"), std::string::npos) << Refusal(bad);
  EXPECT_THROW(Read(json::array()), InputError);
  EXPECT_THROW(Read(json::object()), InputError);
}

TEST_F(PublishedRunFile, AValueThatNoRunCanHaveSkipsItsRowAlone) {
  const auto why = [&](const json& change) {
    json row = row_;
    row.merge_patch(change);
    const PublishedRuns read = Read(json::array({row, row_}));
    EXPECT_EQ(read.runs.at(1).Incomplete(), "") << change;
    return read.runs.at(0).Incomplete();
  };
  EXPECT_EQ(why({{"mbs", 1.5}}), "mbs: 1.5 is not a whole number from 1 to 2147483648");
  EXPECT_NE(why({{"gbs", 1e18}}).find("gbs"), std::string::npos);
  EXPECT_NE(why({{"model", {{"layers", -3}}}}).find("model.layers"), std::string::npos);
  EXPECT_NE(why({{"layout", {{"zero_stage", 4}}}}).find("layout.zero_stage"), std::string::npos);
  EXPECT_NE(why({{"measured", {{"mfu", 49.3}}}}).find("measured.mfu"), std::string::npos);
  EXPECT_NE(why({{"measured", {{"step_time_s", 1e-310}}}}).find("measured.step_time_s"),
            std::string::npos);
  EXPECT_EQ(why({{"recompute", "some"}}), "recompute: \"some\" is not a known value");
  EXPECT_NE(why({{"model", {{"ffn_kind", "kan"}}}}).find("ffn_kind"), std::string::npos);
  EXPECT_NE(why({{"year", "soon"}}).find("year"), std::string::npos);
}

TEST_F(PublishedRunFile, WhatIsAssumedForFactsThatAreNotToldIsListed) {
  EXPECT_TRUE(Read(json::array({row_})).runs.at(0).assumed.empty());
  json row = row_;
  row["model"]["kv_heads"] = nullptr;
  row["model"]["tied_embeddings"] = nullptr;
  row["hardware"]["gpus_per_node"] = nullptr;
  const std::vector<std::string> expected = {"embeddings that are not tied",
                                             "as many kv_heads as heads", "8 GPUs a node"};
  EXPECT_EQ(Read(json::array({row})).runs.at(0).assumed, expected);
}

TEST_F(PublishedRunFile, TakesWordsHoweverTheyAreSpelt) {
  const auto read = [&](const json& change) {
    json row = row_;
    row.merge_patch(change);
    PublishedRun run = Read(json::array({row})).runs.at(0);
    EXPECT_EQ(run.Incomplete(), "") << change;
    return run;
  };
  const auto precision = [&](const char* said) { return read({{"precision", said}}).precision; };
  for (const char* said : {"BF16", "bfloat16", "bf16-mixed", "mixed bf16"}) {
    EXPECT_EQ(precision(said), "bf16") << said;
  }
  EXPECT_EQ(precision("FP16"), "fp16");
  EXPECT_EQ(precision("mxfp8"), "fp8");
  EXPECT_EQ(precision("tf32"), "tf32") << "which is refused later, by its name";
  const auto recompute = [&](const json& said) { return read({{"recompute", said}}).recompute; };
  for (const json& said : json({"Full", "full, no offload", "full:uniform:1", "yes", true})) {
    EXPECT_EQ(recompute(said), "full") << said;
  }
  for (const json& said : json({"no", "None", false})) EXPECT_EQ(recompute(said), "none") << said;
  EXPECT_EQ(read({{"recompute", "selective:core_attn+mla_up_proj"}}).recompute_modules,
            (std::vector<std::string>{"core_attn", "mla_up_proj"}));
  EXPECT_EQ(read({{"recompute", "full:block:3"}}).recompute_layers, 3);
  const auto mlp = [&](const char* said) { return read({{"model", {{"ffn_kind", said}}}}).model; };
  for (const char* said : {"SwiGLU", "geglu", "ReGLU", "gated SiLU"}) {
    EXPECT_TRUE(mlp(said).gated()) << said;
  }
  for (const char* said : {"relu", "ReLU", "squared relu", "GELU", "not gated"}) {
    EXPECT_FALSE(mlp(said).gated()) << said;
  }
  EXPECT_EQ(mlp("squared ReLU").activation, "squared ReLU");
  const auto hardware_flops = [&](const char* said) {
    return read({{"measured", {{"flops_convention", said}}}}).measured.hardware_flops;
  };
  EXPECT_TRUE(hardware_flops("HFU"));
  EXPECT_FALSE(hardware_flops("MFU"));
  EXPECT_FALSE(hardware_flops("unknown"));
  EXPECT_FALSE(read({{"measured", {{"attention_flops", "none"}}}})
                   .measured.causal_attention.value_or(false));
}

TEST_F(PublishedRunFile, TakesNumbersHoweverTheyAreWritten) {
  row_["year"] = "2024";
  row_["hardware"]["gpus"] = 2.0;
  row_["layout"]["sp"] = 0;
  row_["model"]["experts"] = 0;
  row_["layout"]["vp"] = nullptr;
  row_["layout"]["zero_stage"] = nullptr;
  row_["layout"]["dist_optimizer"] = true;
  row_["missing"] = {"layout.vp", "layout.zero_stage"};
  const PublishedRun run = Read(json::array({row_})).runs.at(0);
  EXPECT_EQ(run.Incomplete(), "") << "one stage has nothing to interleave";
  EXPECT_EQ(run.year, 2024);
  EXPECT_EQ(run.hardware.gpus, 2);
  EXPECT_EQ(run.layout.vp, 1);
  EXPECT_EQ(run.layout.zero_stage, 1);
  row_["layout"]["pp"] = 2;
  row_["layout"]["dp"] = 1;
  EXPECT_EQ(Read(json::array({row_})).runs.at(0).Incomplete(), "not told: layout.vp");
}

TEST_F(PublishedRunFile, OnlyPretrainingIsTaken) {
  const auto why = [&](const json& mode, const char* notes) {
    row_["training_mode"] = mode;
    row_["notes"] = notes;
    return Read(json::array({row_})).runs.at(0).Incomplete();
  };
  EXPECT_EQ(why("pretrain", "LoRA is told elsewhere"), "");
  EXPECT_EQ(why("Pre-training", ""), "");
  EXPECT_EQ(why("lora", ""), "training mode lora");
  EXPECT_EQ(why("full fine-tuning", ""), "training mode full fine-tuning");
  EXPECT_EQ(why("distillation", ""), "training mode distillation");
  EXPECT_EQ(why(nullptr, "mock data"), "");
  EXPECT_EQ(why(nullptr, "LoRA rank 16"), "training mode lora");
}

TEST_F(PublishedRunFile, NotesFieldsThatItDoesNotKnow) {
  row_["model"]["colour"] = "blue";
  EXPECT_EQ(Read(json::array({row_})).unknown_fields, std::vector<std::string>{"model.colour"});
}

TEST_F(PublishedRunFile, SaysWhyARunIsIncomplete) {
  row_["mbs"] = nullptr;
  EXPECT_NE(Read(json::array({row_})).runs[0].Incomplete().find("mbs"), std::string::npos);
  row_["blockers"] = {"activation offload"};
  EXPECT_EQ(Read(json::array({row_})).runs[0].Incomplete(), "activation offload");
}

// Narayanan et al., arXiv:2104.04473, table 1: 137 TFLOP/s a GPU of GPT 1.7B, recomputation
// counted, by its formula 96 B s l h^2 (1 + s / 6h + V / 16lh).
TEST_F(PublishedRunFile, TurnsFlopsIntoTokensByTheSourcesConvention) {
  const double h = 2304;
  const double l = 24;
  const double s = 2048;
  const double v = 51200;
  row_["model"].update({{"layers", 24},
                        {"hidden", 2304},
                        {"heads", 24},
                        {"kv_heads", 24},
                        {"head_dim", 96},
                        {"ffn", 9216},
                        {"vocab", 51200},
                        {"seq", 2048}});
  row_["recompute"] = "full";
  row_["measured"] = {
      {"tflops_per_gpu", 137}, {"flops_convention", "hardware"}, {"attention_flops", "full"}};
  const double flops = 96 * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  EXPECT_NEAR(Read(json::array({row_})).runs[0].TokensPerSecondPerGpu(1), 137e12 / flops,
              1e-6 * 137e12 / flops);
}

}  // namespace
}  // namespace trimtab
