#include "export/megatron/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "engine/base/error.h"
#include "engine/config/layout/layout_keys.h"
#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"

namespace trimtab {
namespace {

RunConfig RunOf(const std::string& model, const std::string& layout, int64_t ranks,
                int64_t global_batch, int64_t sequence_length) {
  RunConfig run;
  run.model = LoadModelConfig(model);
  run.layout = ParseLayout(layout, ranks);
  run.global_batch = global_batch;
  run.sequence_length = sequence_length;
  run.device = DeviceKind::kCuda;
  RequireLegal(run);
  return run;
}

/// The options, one a line.
std::string TextOf(const RunConfig& run) { return ToText(ToMegatron(run)); }

void ExpectHas(const std::string& text, const std::string& option) {
  EXPECT_NE(("\n" + text).find("\n" + option + "\n"), std::string::npos)
      << "no " << option << " in:\n"
      << text;
}

void ExpectHasNot(const std::string& text, const std::string& option) {
  EXPECT_EQ(text.find(option), std::string::npos) << text;
}

std::string WhyNot(const RunConfig& run) {
  try {
    ToMegatron(run);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// The sizes are those of Megatron-LM's examples/gpt3/train_gpt3_175b_distributed.sh.
TEST(ToMegatron, AsksForGpt3AsItsExampleDoes) {
  const std::string text =
      TextOf(RunOf("gpt3-175b", "tp=8,pp=16,mbs=1,precision=bf16", 1024, 1536, 2048));
  for (const char* option :
       {"--num-layers 96", "--hidden-size 12288", "--num-attention-heads 96", "--seq-length 2048",
        "--max-position-embeddings 2048", "--micro-batch-size 1", "--global-batch-size 1536",
        "--adam-beta1 0.9", "--adam-beta2 0.95", "--tensor-model-parallel-size 8",
        "--pipeline-model-parallel-size 16", "--bf16", "--normalization LayerNorm",
        "--position-embedding-type learned_absolute", "--ffn-hidden-size 49152",
        "--kv-channels 128", "--overlap-grad-reduce", "--accumulate-allreduce-grads-in-fp32"}) {
    ExpectHas(text, option);
  }
  for (const char* option :
       {"--swiglu", "--disable-bias-linear", "--group-query-attention", "--untie-embeddings",
        "--use-distributed-optimizer", "--sequence-parallel", "--recompute", "--num-experts",
        "--train-iters", "--num-virtual-stages"}) {
    ExpectHasNot(text, option);
  }
}

TEST(ToMegatron, AsksForLlama3AndItsShardingAndRecompute) {
  RunConfig run =
      RunOf("llama3.1-8b",
            "tp=2,sp=1,cp=2,cp_comm_type=all_gather,pp=4,vp=2,schedule=interleaved-1f1b,"
            "zero=1,shard=2,overlap_param_gather=1,mbs=1,precision=bf16,"
            "moments=bf16,master=remainder,recompute=full:block:2",
            64, 128, 8192);
  run.steps = 100;
  const std::string text = TextOf(run);
  for (const char* option : {"--group-query-attention",
                             "--num-query-groups 8",
                             "--swiglu",
                             "--disable-bias-linear",
                             "--normalization RMSNorm",
                             "--untie-embeddings-and-output-weights",
                             "--rotary-base 500000",
                             "--use-rope-scaling",
                             "--rope-scaling-factor 8",
                             "--sequence-parallel",
                             "--context-parallel-size 2",
                             "--cp-comm-type all_gather",
                             "--num-virtual-stages-per-pipeline-rank 2",
                             "--use-distributed-optimizer",
                             "--overlap-param-gather",
                             "--num-distributed-optimizer-instances 4",
                             "--use-precision-aware-optimizer",
                             "--exp-avg-dtype bf16",
                             "--exp-avg-sq-dtype bf16",
                             "--recompute-granularity full",
                             "--recompute-method block",
                             "--recompute-num-layers 2",
                             "--train-iters 100",
                             "--lr-decay-iters 100"}) {
    ExpectHas(text, option);
  }
  ExpectHasNot(text, "--add-qkv-bias");
}

/// A layout, and another value of one of its keys.
struct KeyChange {
  const char* key;
  const char* model;
  const char* layout;
  const char* value;
};
constexpr char kGpt[] = "gpt2-124m";
constexpr char kMoe[] = "mixtral-8x7b";
constexpr char kDense[] = "tp=2,sp=1,cp=2,pp=2,dp=2,zero=1,mbs=1,precision=bf16";
constexpr char kChunks[] = "pp=2,vp=2,dp=2,mbs=1,precision=bf16";
constexpr char kExperts[] = "tp=2,sp=1,ep=2,dp=4,mbs=1,precision=bf16";
constexpr char kFsdp[] = "dp=4,zero=3,mbs=1,precision=bf16";
constexpr KeyChange kKeyChanges[] = {
    {"tp", kGpt, kDense, "4"},
    {"sp", kGpt, kDense, "0"},
    {"tp_overlap_chunks", kGpt, kDense, "2"},
    {"cp", kGpt, kDense, "4"},
    {"cp_comm_type", kGpt, kDense, "all_gather"},
    {"pp", kGpt, kDense, "4"},
    {"vp", kGpt, kChunks, "3"},
    {"stages", kGpt, kDense, "5+7"},
    {"ep", kMoe, kExperts, "4"},
    {"etp", kMoe, kExperts, "2"},
    {"dispatch", kMoe, kExperts, "allgather"},
    {"zero", kGpt, kDense, "2"},
    {"shard", kGpt, kDense, "2"},
    {"reshard_after_forward", kGpt, kFsdp, "0"},
    {"overlap_grad_reduce", kGpt, kDense, "0"},
    {"overlap_param_gather", kGpt, kDense, "1"},
    {"schedule", kGpt, kDense, "gpipe"},
    {"mbs", kGpt, kDense, "2"},
    {"recompute", kGpt, kDense, "full"},
    {"precision", kGpt, kDense, "fp16"},
    {"master", kGpt, kDense, "remainder"},
    {"moments", kGpt, kDense, "bf16"},
    {"grads", kGpt, kDense, "bf16"},
};

// Megatron-LM counts the data-parallel ranks itself. A new key needs a row.
TEST(ToMegatron, SaysEveryKeyOfALayoutOrRefusesIt) {
  const auto text_of = [](const RunConfig& run) {
    RequireLegal(run);
    const std::string refused = WhyNot(run);
    return refused.empty() ? TextOf(run) : refused;
  };
  for (const LayoutKey& key : LayoutKeys()) {
    if (std::string_view(key.name) == "dp") continue;
    const auto* row = std::ranges::find(kKeyChanges, std::string_view(key.name), &KeyChange::key);
    ASSERT_NE(row, std::end(kKeyChanges)) << key.name;
    RunConfig run = RunOf(row->model, row->layout, /*ranks=*/0, 64, 1024);
    const std::string before = text_of(run);
    key.parse(row->value, key.name, run.layout);
    EXPECT_NE(text_of(run), before) << key.name;
  }
}

// A replica is sharded over the ranks of context parallelism too.
TEST(ToMegatron, CountsReplicasOverDataAndContextRanks) {
  const auto text = [](const char* shard) {
    return TextOf(
        RunOf("gpt2-124m", std::string("tp=1,cp=2,dp=2,zero=1,mbs=1,") + shard, 4, 8, 1024));
  };
  ExpectHas(text("shard=2"), "--num-distributed-optimizer-instances 2");
  ExpectHasNot(text("shard=4"), "--num-distributed-optimizer-instances");
  ExpectHasNot(text("shard=0"), "--num-distributed-optimizer-instances");
}

TEST(ToMegatron, AsksForExperts) {
  const std::string text = TextOf(
      RunOf("mixtral-8x7b", "tp=2,sp=1,pp=4,ep=8,etp=1,mbs=1,zero=3,precision=bf16", 64, 64, 4096));
  for (const char* option :
       {"--num-experts 8", "--moe-router-topk 2", "--moe-layer-freq '[1]*32'",
        "--moe-ffn-hidden-size 14336", "--moe-grouped-gemm", "--expert-model-parallel-size 8",
        "--expert-tensor-parallel-size 1", "--moe-token-dispatcher-type alltoall",
        "--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads_params",
        "--ckpt-format fsdp_dtensor"}) {
    ExpectHas(text, option);
  }
}

TEST(MegatronConnections, AreOneWhereMessagesKeepTheirPlaceAndSeveralWhereShardsMove) {
  EXPECT_EQ(MegatronConnections(ParseLayout("zero=1,precision=bf16", 8)), 0);
  EXPECT_EQ(MegatronConnections(ParseLayout("tp=2,zero=1,precision=bf16", 8)), 1);
  EXPECT_EQ(MegatronConnections(ParseLayout("cp=2,zero=0,precision=bf16", 8)), 1);
  EXPECT_GT(MegatronConnections(ParseLayout("tp=2,zero=3,precision=bf16", 8)), 1);
}

TEST(ToMegatron, SaysWhichLayersHaveExperts) {
  RunConfig run = RunOf("mixtral-8x7b", "tp=1,ep=8,mbs=1,precision=bf16", 8, 8, 4096);
  run.model.moe.first_k_dense = 3;
  ExpectHas(TextOf(run), "--moe-layer-freq '[0]*3+[1]*29'");
}

TEST(ToMegatron, SpellsOutUnevenStages) {
  RunConfig run = RunOf("gpt2-124m", "tp=1,pp=4,stages=2+4+4+2,mbs=1,precision=bf16", 4, 8, 1024);
  ExpectHas(TextOf(run), "--pipeline-model-parallel-layout 'Et*2|t*4|t*4|t*2L'");
  // Ours counts embedding and loss as layers where it balances: Megatron-LM must be told.
  run.layout.stages = {};
  run.model.num_layers = 14;
  ExpectHas(TextOf(run), "--pipeline-model-parallel-layout 'Et*3|t*4|t*4|t*3L'");
  run.model.num_layers = 12;
  ExpectHasNot(TextOf(run), "--pipeline-model-parallel-layout");
}

TEST(ToMegatron, NamesWhatMegatronHasNoOptionFor) {
  const auto gpt2 = [](const std::string& layout) {
    return RunOf("gpt2-124m", layout, 4, 16, 1024);
  };
  EXPECT_EQ(WhyNot(gpt2("tp=1,pp=2,schedule=zero-bubble,mbs=1")),
            "Megatron-LM has no option for schedule=zero-bubble");
  EXPECT_EQ(WhyNot(gpt2("tp=1,pp=2,schedule=gpipe,mbs=1")),
            "Megatron-LM has no option for schedule=gpipe");
  EXPECT_EQ(WhyNot(gpt2("tp=1,mbs=1,recompute=selective:logits")),
            "Megatron-LM has no option for recompute=selective:logits");
  EXPECT_EQ(WhyNot(gpt2("tp=1,mbs=1,precision=tf32")),
            "Megatron-LM has no option for precision=tf32");
  EXPECT_EQ(WhyNot(RunOf("bloom-560m", "tp=1,mbs=1", 1, 4, 1024)),
            "Megatron-LM has no option for a norm behind the embedding");
  EXPECT_EQ(WhyNot(RunOf("gemma2-9b", "tp=1,mbs=1,precision=bf16", 1, 4, 1024)),
            "Megatron-LM has no option for this form of the block");
  RunConfig qwen = RunOf("qwen3-0.6b", "tp=1,mbs=1,precision=bf16", 1, 4, 1024);
  qwen.model.query_key_norm_whole = true;
  EXPECT_EQ(WhyNot(qwen), "Megatron-LM has no option for norms over all queries and over all keys");
  RunConfig mistral = RunOf("mistral-7b-v0.1", "tp=1,mbs=1,precision=bf16", 1, 4, 1024);
  mistral.model.window_rope_theta = 1e4;
  EXPECT_EQ(WhyNot(mistral),
            "Megatron-LM has no option for rotary positions of layers with a window");
  EXPECT_EQ(WhyNot(gpt2("tp=1,dp=2,zero=1,mbs=1,precision=bf16,moments=int8")),
            "Megatron-LM has no option for moments=int8");
  RunConfig run = gpt2("tp=1,mbs=1");
  run.frozen = {"*.bias"};
  EXPECT_EQ(WhyNot(run), "Megatron-LM has no option for frozen parameters");
  run.frozen.clear();
  run.optimizer.groups = {{.match = {"*.bias"}}};
  EXPECT_EQ(WhyNot(run), "Megatron-LM has no option for optimizer.groups");
  run.optimizer = {.kind = OptimizerKind::kMuon};
  EXPECT_EQ(WhyNot(run), "Megatron-LM has no option for this optimizer");
}

}  // namespace
}  // namespace trimtab
