// One case per rule: a legal run with one thing changed breaks exactly that rule.
#include "engine/config/rules/rules.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/families/load_config.h"
#include "tests/engine/config/error_text.h"

namespace trimtab {
namespace {

/// tp 2 x dp 2 with everything on, of a model with rotary positions and 4 key/value heads of 4.
RunConfig Legal() {
  return {.model = LoadModelConfig("llama-15m"),
          .layout = {.tp = 2,
                     .sequence_parallel = true,
                     .dp = 2,
                     .zero = 1,
                     .micro_batch = 2,
                     .recompute = ParseStageRecompute("full:block:8", "")},
          .global_batch = 8,
          .sequence_length = 128};
}

void MakeLatent(RunConfig& run) {
  run.model.num_kv_heads = run.model.num_heads;
  run.model.norm = NormKind::kRmsNorm;
  run.model.position = PositionKind::kRope;
  run.model.bias = false;
  run.model.latent = {
      .kv_lora_rank = 16, .qk_nope_head_dim = 8, .qk_rope_head_dim = 4, .v_head_dim = 8};
}

MoeConfig Experts() { return {.num_experts = 8, .ffn_hidden_size = 32}; }

struct Breach {
  std::function<void(RunConfig& run)> apply;
  std::string message;
};

const std::map<std::string, Breach>& Breaches() {
  static const std::map<std::string, Breach> breaches = {
      {"model-sizes-positive",
       {[](RunConfig& run) { run.model.vocab_size = 0; }, "vocab_size is 0; must be at least 1"}},
      {"layout-sizes-positive",
       {[](RunConfig& run) { run.layout.ep = -1; }, "ep is -1; must be at least 1"}},
      {"run-sizes-positive",
       {[](RunConfig& run) { run.sequence_length = 0; },
        "sequence_length is 0; must be at least 1"}},
      {"run-limits-not-negative",
       {[](RunConfig& run) { run.threads_per_rank = -2; },
        "threads_per_rank is -2; must be at least 0"}},
      {"cp-comm-type-requires-cp",
       {[](RunConfig& run) { run.layout.cp_comm_type = CpCommType::kAllGather; },
        "cp_comm_type=all_gather needs cp of at least 2, and cp is 1"}},
      {"sequence-divisible-by-2cp",
       {[](RunConfig& run) {
          run.layout.cp = 2;
          run.sequence_length = 130;
        },
        "sequence_length 130 is not divisible by 2 x cp = 4"}},
      {"moe-consistent",
       {[](RunConfig& run) {
          run.model.moe = Experts();
          run.model.moe.router_topk = 9;
        },
        "router_topk 9 is more than num_experts 8"}},
      {"expert-ranks-require-experts",
       {[](RunConfig& run) { run.layout.ep = 2; }, "ep is 2, etp 1, and the model has no experts"}},
      {"dispatch-requires-expert-ranks",
       {[](RunConfig& run) { run.layout.dispatch = Dispatch::kAllGather; },
        "dispatch=allgather needs ep x etp of at least 2, and ep is 1, etp 1"}},
      {"document-mask-requires-routing-by-token",
       {[](RunConfig& run) {
          run.model.moe = Experts();
          run.model.moe.capacity_factor = 1.25;
          run.packing.mask = AttentionMask::kDocuments;
        },
        "mask=documents with Sinkhorn's router or a capacity, which look at whole sequences; "
        "expected a top-k router without capacity_factor"}},
      {"experts-divisible-by-ep",
       {[](RunConfig& run) {
          run.model.moe = Experts();
          run.model.moe.num_experts = 6;
          run.layout.ep = 4;
        },
        "moe.num_experts 6 is not divisible by ep 4"}},
      {"expert-ranks-divide-stage",
       {[](RunConfig& run) {
          run.model.moe = Experts();
          run.layout.ep = 8;
        },
        "tp 2 x cp 1 x dp 2 is not divisible by etp 1 x ep 8"}},
      {"expert-ffn-divisible-by-etp",
       {[](RunConfig& run) {
          run.model.moe = Experts();
          run.model.moe.ffn_hidden_size = 65;
          run.layout.etp = 2;
        },
        "moe.ffn_hidden_size 65 is not divisible by etp 2"}},
      {"shared-experts-divisible-by-tp",
       {[](RunConfig& run) {
          run.model.moe = Experts();
          run.model.moe.shared_ffn_hidden_size = 33;
        },
        "moe.shared_ffn_hidden_size 33 is not divisible by tp 2"}},
      {"experts-require-sp-with-tp",
       {[](RunConfig& run) {
          run.model.moe = Experts();
          run.layout.sequence_parallel = false;
        },
        "tp is 2, and experts need sp=1 with it"}},
      {"shard-fits-experts",
       {[](RunConfig& run) {
          run.model.moe = Experts();
          run.model.moe.num_experts = 12;
          run.layout = ParseLayout("tp=2,sp=1,dp=12,zero=1,shard=4,ep=12,mbs=1", 0);
          run.global_batch = 12;
        },
        "neither of tp 2 x shard 4 and etp 1 x ep 12 divides the other"}},
      {"schedule-requires-pp",
       {[](RunConfig& run) { run.layout.schedule = Schedule::kGpipe; },
        "schedule=gpipe needs pp of at least 2, and pp is 1"}},
      {"vp-with-interleaved-schedule",
       {[](RunConfig& run) { run.layout.vp = 2; },
        "vp is 2 and schedule 1f1b; vp above 1 needs schedule=interleaved-1f1b"}},
      {"chunks-not-empty",
       {[](RunConfig& run) { run.layout.pp = 64; },
        "pp 64 x vp 1 makes more chunks than 8 layers, the embedding and the loss can fill"}},
      {"stages-cover-model",
       {[](RunConfig& run) { run.layout.stages = ParseStageLayers("3+2", ""); },
        "stages=3+2 lists 2 chunks and 5 layers; expected pp 1 x vp 1 and 8"}},
      {"micro-batches-divisible-by-pp",
       {[](RunConfig& run) {
          run.layout.pp = 4;
          run.layout.vp = 2;
          run.layout.schedule = Schedule::kInterleaved1F1B;
        },
        "with schedule=interleaved-1f1b, 2 micro batches are not divisible by pp 4"}},
      {"resharding-requires-sharded-weights",
       {[](RunConfig& run) { run.layout.reshard_after_forward = false; },
        "reshard_after_forward=0 goes with zero=3, and zero is 1"}},
      {"tf32-requires-cuda",
       {[](RunConfig& run) { run.layout.numerics.precision = Precision::kTf32; },
        "precision=tf32 on device cpu; use fp32 there"}},
      {"remainder-requires-bf16-weights",
       {[](RunConfig& run) { run.layout.numerics.master = MasterWeights::kRemainder; },
        "master=remainder needs precision bf16 or fp8, and it is fp32"}},
      {"bf16-gradients-require-bf16-weights",
       {[](RunConfig& run) { run.layout.numerics.gradients = DType::kBf16; },
        "grads=bf16 needs precision bf16 or fp8, and it is fp32"}},
      {"fp8-sizes-divisible-by-16",
       {[](RunConfig& run) {
          run.layout.numerics.precision = Precision::kFp8;
          run.sequence_length = 4;
        },
        "fp8: mbs x sequence_length / cp is 8, no multiple of 16"}},
      {"latent-attention-consistent",
       {[](RunConfig& run) {
          MakeLatent(run);
          run.model.position = PositionKind::kAlibi;
        },
        "latent_attention: its heads turn in part, expected position rope and no "
        "rotary_fraction"}},
      {"query-key-norm-whole-consistent",
       {[](RunConfig& run) { run.model.query_key_norm_whole = true; },
        "query_key_norm_whole is true, and query_key_norm is false"}},
      {"rope-scaling-original-length",
       {[](RunConfig& run) { run.model.rope_scaling.kind = RopeScalingKind::kLlama3; },
        "rope_scaling needs an original_length of at least 1"}},
      {"hidden-divisible-by-heads",
       {[](RunConfig& run) { run.model.hidden_size = 388; },
        "hidden_size 388 is not divisible by num_heads 8"}},
      {"heads-divisible-by-kv-heads",
       {[](RunConfig& run) { run.model.num_kv_heads = 6; },
        "num_heads 8 is not divisible by num_kv_heads 6"}},
      {"head-size-even-with-rope",
       {[](RunConfig& run) { run.model.hidden_size = 8 * 47; },
        "head size 47 x rotary_fraction 1 makes 47 elements that turn; expected an even number of "
        "at least 2"}},
      {"rotary-size-unsupported",
       {[](RunConfig& run) { run.model.hidden_size = 8 * 1026; },
        "the rotary size of a head is 1026; this version runs at most 1024"}},
      {"sequence-within-positions",
       {[](RunConfig& run) {
          run.model.position = PositionKind::kLearned;
          run.sequence_length = 514;
        },
        "sequence_length 514 exceeds the model's 512 positions"}},
      // 3 heads of 128 and 1 of key and value; kv heads then break as well, but later.
      {"heads-divisible-by-tp",
       {[](RunConfig& run) { run.model.num_heads = run.model.num_kv_heads = 3; },
        "num_heads 3 is not divisible by tp 2"}},
      {"kv-heads-divisible-by-tp",
       {[](RunConfig& run) {
          run.model.num_heads = 6;
          run.model.num_kv_heads = 3;
        },
        "neither of num_kv_heads 3 and tp 2 is divisible by the other"}},
      {"ffn-divisible-by-tp",
       {[](RunConfig& run) { run.model.ffn_hidden_size = 1281; },
        "ffn_hidden_size 1281 is not divisible by tp 2"}},
      {"sp-requires-tp",
       {[](RunConfig& run) { run.layout.tp = 1; }, "sp=1 needs tp of at least 2, and tp is 1"}},
      {"tokens-divisible-by-tp-with-sp",
       {[](RunConfig& run) {
          run.layout.micro_batch = 1;
          run.sequence_length = 127;
        },
        "with sp=1, mbs 1 x sequence_length 127 / cp 1 is not divisible by tp 2"}},
      {"tp-overlap-requires-tp",
       {[](RunConfig& run) {
          run.layout.tp = 1;
          run.layout.sequence_parallel = false;
          run.layout.tp_overlap_chunks = 4;
        },
        "tp_overlap_chunks=4 needs tp of at least 2, and tp is 1"}},
      {"tp-overlap-without-fp8",
       {[](RunConfig& run) {
          run.layout.numerics.precision = Precision::kFp8;
          run.layout.tp_overlap_chunks = 4;
        },
        "tp_overlap_chunks=4 goes with every precision but fp8"}},
      {"rows-divisible-by-tp-overlap-chunks",
       {[](RunConfig& run) { run.layout.tp_overlap_chunks = 3; },
        "rows per rank 128 is not divisible by tp_overlap_chunks 3"}},
      {"zero-requires-dp",
       {[](RunConfig& run) { run.layout.dp = 1; },
        "zero=1 needs dp x cp of at least 2, and dp is 1, cp 1"}},
      {"shard-requires-zero",
       {[](RunConfig& run) {
          run.layout.zero = 0;
          run.layout.shard = 2;
        },
        "shard=2 needs zero of at least 1, and zero is 0"}},
      {"shard-divides-data-ranks",
       {[](RunConfig& run) { run.layout.shard = 1; },
        "shard=1 must divide dp x cp = 2 and be at least 2"}},
      {"param-gather-overlap-requires-whole-weights",
       {[](RunConfig& run) {
          run.layout.zero = 3;
          run.layout.overlap_param_gather = true;
        },
        "overlap_param_gather=1 goes with zero=1 and zero=2, and zero is 3"}},
      {"global-batch-divisible",
       {[](RunConfig& run) { run.global_batch = 6; },
        "global_batch 6 is not divisible by mbs 2 x dp 2"}},
      {"micro-batches-at-most",
       {[](RunConfig& run) { run.global_batch = 4 * (65536 + 1); },
        "65537 micro batches a step; expected at most 65536"}},
      {"recompute-layers-within-model",
       {[](RunConfig& run) { run.layout.recompute = ParseStageRecompute("full:block:9", ""); },
        "recompute of 9 layers, and the model has 8"}},
      {"recompute-plan-per-stage",
       {[](RunConfig& run) { run.layout.recompute = ParseStageRecompute("3xfull/none", ""); },
        "recompute=3xfull/none lists 4 stages, and pp is 1"}},
  };
  return breaches;
}

// Every head rule that tp breaks is broken by the key/value heads too, as they divide the heads.
const std::map<std::string, std::set<std::string>> kAlsoBroken = {
    {"heads-divisible-by-tp", {"kv-heads-divisible-by-tp"}}};

TEST(Rules, LegalRunBreaksNone) {
  EXPECT_EQ(FirstBrokenRule(Legal()), nullptr);
  EXPECT_NO_THROW(RequireLegal(Legal()));
}

TEST(Rules, EachBreachBreaksItsRuleAndNoOther) {
  for (const auto& [id, breach] : Breaches()) {
    RunConfig run = Legal();
    breach.apply(run);
    EXPECT_EQ(ErrorText<InfeasibleError>([&run] { RequireLegal(run); }),
              id + ": " + breach.message);
    // The first rules guard the divisions of the others, which may not be evaluated without them.
    if (id.ends_with("-positive")) continue;
    for (const Rule& rule : LegalityRules()) {
      const bool also = kAlsoBroken.contains(id) && kAlsoBroken.at(id).contains(rule.id);
      EXPECT_EQ(rule.holds(run), rule.id != id && !also) << id << " against " << rule.id;
    }
  }
}

TEST(Rules, ContextParallelRanksShareSequencesAndWhatIsSharded) {
  RunConfig run = Legal();
  run.layout = ParseLayout("cp=2,zero=3", 0);
  EXPECT_EQ(FirstBrokenRule(run), nullptr);
  run.layout = ParseLayout("tp=2,sp=1,cp=4,cp_comm_type=all_gather,mbs=2", 0);
  EXPECT_EQ(FirstBrokenRule(run), nullptr);
  run.sequence_length = 8;
  EXPECT_EQ(FirstBrokenRule(run), nullptr) << "a run of one token";
  run.layout.numerics.precision = Precision::kFp8;
  EXPECT_EQ(ErrorText<InfeasibleError>([&run] { RequireLegal(run); }),
            "fp8-sizes-divisible-by-16: fp8: mbs x sequence_length / cp is 4, no multiple of 16");
}

TEST(Rules, OnlyTheEndsOfAPipelineMayGoWithoutLayers) {
  RunConfig run = Legal();
  run.layout = ParseLayout("pp=3,stages=0+8+0", 0);
  EXPECT_NO_THROW(RequireLegal(run));
  run.layout = ParseLayout("pp=3,stages=4+0+4", 0);
  EXPECT_EQ(
      ErrorText<InfeasibleError>([&run] { RequireLegal(run); }),
      "stages-cover-model: stages=4+0+4 leaves chunk 1 empty; expected a layer in every chunk "
      "but the first and the last");
}

TEST(Rules, EveryRuleHasACaseAnIdAndADescription) {
  std::set<std::string> ids;
  for (const Rule& rule : LegalityRules()) {
    EXPECT_TRUE(Breaches().contains(rule.id)) << rule.id;
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
    EXPECT_EQ(std::string(rule.id).find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"),
              std::string::npos);
    EXPECT_TRUE(std::string(rule.description).ends_with('.')) << rule.id;
  }
  EXPECT_EQ(ids.size(), Breaches().size());
}

TEST(Rules, RopeIsNotBoundByItsTrainedLength) {
  RunConfig run = Legal();
  run.sequence_length = 4096;
  EXPECT_EQ(FirstBrokenRule(run), nullptr);
}

// Sizes that would divide by zero further down are stopped by the first rules.
TEST(Rules, ZeroedConfigurationIsRefusedCalmly) {
  RunConfig run;
  ASSERT_NE(FirstBrokenRule(run), nullptr);
  EXPECT_STREQ(FirstBrokenRule(run)->id, "model-sizes-positive");
  run = Legal();
  run.layout.tp = 0;
  EXPECT_STREQ(FirstBrokenRule(run)->id, "layout-sizes-positive");
  run = Legal();
  run.layout.micro_batch = 0;
  EXPECT_STREQ(FirstBrokenRule(run)->id, "layout-sizes-positive");
}

}  // namespace
}  // namespace trimtab
