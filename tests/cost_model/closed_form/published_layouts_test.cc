// The closed form and the dry run agree in every stage of the layouts that large models were
// trained in, on up to 16,384 GPUs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"
#include "tests/cost_model/closed_form/same_estimate.h"
#include "tests/cost_model/closed_form/spaces.h"

namespace trimtab {
namespace {

struct Published {
  const char* name;
  const char* model;
  const char* cluster;
  int64_t global_batch;
  int64_t sequence_length;
  const char* layout;
};

constexpr Published kPublished[] = {
    // Narayanan et al., arXiv:2104.04473, section 5: interleaved, and with a batch of 384 samples.
    {"gpt3_175b", "gpt3-175b", "128x8xa100", 384, 2048,
     "tp=8,pp=16,vp=2,dp=8,schedule=interleaved-1f1b,recompute=full"},
    {"gpt3_175b_sequence_parallel", "gpt3-175b", "128x8xa100", 384, 2048,
     "tp=8,sp=1,pp=16,vp=3,dp=8,zero=1,schedule=interleaved-1f1b,recompute=selective"},
    {"gpt3_175b_zero_bubble", "gpt3-175b", "128x8xa100", 384, 2048,
     "tp=8,sp=1,pp=16,dp=8,zero=1,schedule=zero-bubble"},
    // Smith et al., arXiv:2201.11990, section 3.2: 280 GPUs a replica, 8 of them, batch 1920.
    {"mt_nlg_530b", "mt-nlg-530b", "280x8xa100", 1920, 2048,
     "tp=8,pp=35,dp=8,zero=1,recompute=full"},
    {"mt_nlg_530b_selective", "mt-nlg-530b", "280x8xa100", 280, 2048,
     "tp=8,sp=1,pp=35,vp=3,dp=8,schedule=interleaved-1f1b,recompute=selective"},
    // Llama team, arXiv:2407.21783, table 4: tp 8, pp 16, 16 M tokens a batch on 8,192 and 16,384
    // GPUs; sharded optimizer and gradients.
    {"llama3_405b_8192", "llama3-405b", "1024x8xh100", 2048, 8192, "tp=8,sp=1,pp=16,dp=64,zero=2"},
    {"llama3_405b_16384", "llama3-405b", "2048x8xh100", 2048, 8192,
     "tp=8,sp=1,pp=16,vp=4,dp=128,zero=1,schedule=interleaved-1f1b"},
    {"llama3_405b_16384_gathered_late", "llama3-405b", "2048x8xh100", 2048, 8192,
     "tp=8,sp=1,pp=16,vp=4,dp=128,zero=2,shard=16,overlap_param_gather=1,"
     "schedule=interleaved-1f1b"},
    {"llama3_405b_16384_fsdp", "llama3-405b", "2048x8xh100", 2048, 8192,
     "tp=8,sp=1,pp=16,dp=128,zero=3,recompute=full:block:2"},
    {"llama3_405b_16384_cp", "llama3-405b", "2048x8xh100", 1024, 8192,
     "tp=8,sp=1,cp=2,pp=16,vp=4,dp=64,zero=2,schedule=interleaved-1f1b"},
    {"llama3_405b_16384_cp_gathered", "llama3-405b", "2048x8xh100", 1024, 8192,
     "tp=8,sp=1,cp=2,cp_comm_type=all_gather,pp=16,dp=64,zero=1"},
    // DeepSeek-AI, arXiv:2412.19437, section 3.2: pp 16, ep 64, zero 1 on 2,048 H800.
    {"deepseek_v3_2048", "deepseek-v3", "256x8xh800", 15360, 4096,
     "pp=16,dp=128,ep=64,zero=1,recompute=selective"},
    {"deepseek_v2_sequence_parallel", "deepseek-v2", "32x8xh800", 512, 4096,
     "tp=4,sp=1,pp=4,dp=16,ep=32,zero=1"},
};

void PrintTo(const Published& published, std::ostream* out) { *out << published.name; }

class PublishedLayouts : public testing::TestWithParam<Published> {};

TEST_P(PublishedLayouts, EveryStageComposes) {
  RunConfig run;
  run.model = LoadModelConfig(GetParam().model);
  run.device = DeviceKind::kCuda;
  run.global_batch = GetParam().global_batch;
  run.sequence_length = GetParam().sequence_length;
  run.layout = ParseLayout(fmt::format("{},precision=bf16", GetParam().layout), 0);
  const Rule* broken = FirstBrokenRule(run);
  if (broken != nullptr && IsUnsupported(*broken)) GTEST_SKIP() << broken->description;
  ASSERT_EQ(broken, nullptr) << broken->message(run);
  const Cluster cluster = LoadCluster(GetParam().cluster);
  ASSERT_EQ(run.layout.world_size(), cluster.max_ranks);
  ClosedFormEstimator estimator(run.model, run.sequence_length, cluster);
  ExpectSameStages(estimator, run, cluster);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PublishedLayouts, testing::ValuesIn(kPublished),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace trimtab
