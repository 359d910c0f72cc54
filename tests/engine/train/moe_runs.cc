#include "tests/engine/train/moe_runs.h"

#include "engine/base/error.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

MoeRun Of(const std::string& name, bool llama, const MoeConfig& moe, bool force_balance = false) {
  RunConfig run = SmallRun(llama);
  run.model.moe = moe;
  run.routing.force_balance = force_balance;
  // Logits far enough apart for choices that no rounding turns over.
  run.model.init_std = 0.2;
  return {name, run};
}

MoeRun WithLatentAttention(MoeRun run) {
  run.run.model.num_kv_heads = run.run.model.num_heads;
  run.run.model.latent = {.q_lora_rank = 12,
                          .kv_lora_rank = 10,
                          .qk_nope_head_dim = 4,
                          .qk_rope_head_dim = 2,
                          .v_head_dim = 5};
  return run;
}

}  // namespace

std::vector<MoeRun> SmallMoeRuns() {
  const MoeConfig mixtral = {
      .num_experts = 4, .router_topk = 2, .ffn_hidden_size = 48, .aux_loss_coeff = 0.02};
  MoeConfig qwen = mixtral;
  qwen.num_experts = 8;
  qwen.ffn_hidden_size = 24;
  qwen.pre_softmax = qwen.norm_topk = true;
  qwen.shared_ffn_hidden_size = 24;
  qwen.shared_expert_gate = true;
  qwen.z_loss_coeff = 1e-2;
  const MoeConfig deepseek = {.num_experts = 8,
                              .router_topk = 3,
                              .ffn_hidden_size = 24,
                              .shared_ffn_hidden_size = 48,
                              .first_k_dense = 1,
                              .score = RouterScore::kSigmoid,
                              .norm_topk = true,
                              .topk_scaling_factor = 2.5,
                              .num_groups = 4,
                              .group_topk = 2,
                              .group_score = GroupScore::kSumOfTopTwo,
                              .expert_bias = true,
                              .bias_update_rate = 0.05,
                              .aux_loss_coeff = 1e-2};
  const MoeConfig sinkhorn = {.num_experts = 4,
                              .router_topk = 1,
                              .ffn_hidden_size = 48,
                              .layer_freq = 2,
                              .layer_offset = 1,
                              .router = RouterKind::kSinkhorn,
                              .score = RouterScore::kSigmoid,
                              .z_loss_coeff = 1e-2};
  MoeConfig dropping = mixtral;
  dropping.capacity_factor = 1.0;
  dropping.router_bias = true;
  dropping.logit_soft_cap = 2.0;
  MoeConfig padding = dropping;
  padding.drop_policy = DropPolicy::kPosition;
  padding.pad_to_capacity = true;
  return {Of("mixtral", true, mixtral),
          Of("qwen", true, qwen),
          WithLatentAttention(Of("deepseek", true, deepseek)),
          Of("sinkhorn", false, sinkhorn),
          Of("dropping", false, dropping),
          Of("padding", true, padding),
          Of("balanced", true, mixtral, true),
          Of("balanced_biases", false, mixtral, true)};
}

std::vector<std::string> SmallMoeLayouts() {
  return {
      "mbs=4",
      "mbs=8,recompute=full",
      "mbs=2,recompute=selective:mlp_act+layernorm",
      "mbs=2,recompute=selective:mlp",
      "tp=2,sp=1,mbs=2",
      "tp=2,sp=1,mbs=1,recompute=selective:mlp+core_attn",
      "tp=2,sp=1,tp_overlap_chunks=2,mbs=2",
      "dp=2,mbs=2,zero=1",
      "dp=2,mbs=1,zero=2",
      "dp=4,mbs=1,zero=3",
      "cp=2,mbs=2",
      "cp=3,mbs=1,cp_comm_type=all_gather",
      "cp=2,tp=2,sp=1,mbs=1,zero=1",
      "pp=2,mbs=1",
      "pp=3,mbs=2,schedule=gpipe,recompute=full:uniform:1",
      "pp=2,mbs=2,schedule=zero-bubble",
      "pp=2,vp=2,mbs=1,schedule=interleaved-1f1b",
      "pp=2,tp=2,sp=1,dp=2,mbs=1,zero=1,schedule=zero-bubble",
      "pp=2,dp=2,zero=3,mbs=2,schedule=zero-bubble,recompute=selective:mlp_act",
      "dp=2,ep=2,mbs=2",
      "dp=2,ep=2,dispatch=allgather,mbs=2",
      "dp=4,ep=4,mbs=1,zero=2",
      "dp=4,ep=2,mbs=1,zero=3,recompute=selective:mlp",
      "dp=2,etp=2,mbs=2,zero=1",
      "tp=2,sp=1,etp=2,mbs=2",
      "tp=2,sp=1,ep=2,dispatch=allgather,mbs=2",
      "tp=2,sp=1,dp=2,ep=2,etp=2,mbs=1,zero=1",
      "tp=2,sp=1,dp=2,ep=2,etp=2,dispatch=allgather,mbs=1",
      "cp=2,ep=2,mbs=2",
      "cp=2,tp=2,sp=1,ep=4,mbs=1,recompute=full",
      "pp=2,dp=2,ep=2,mbs=2,zero=2,schedule=zero-bubble",
      "pp=2,tp=2,sp=1,ep=2,mbs=1,schedule=gpipe",
  };
}

RunConfig SmallMoeRun(const std::string& name) {
  for (const MoeRun& each : SmallMoeRuns()) {
    if (each.name == name) return each.run;
  }
  TRIMTAB_ASSERT(false, "no small run is called {}", name);
}

RunConfig SmallMoeRunInFp8(const std::string& name) {
  RunConfig run = SmallMoeRun(name);
  run.routing.force_balance = true;
  // As wide as for choices that no rounding turns over, weights would make ten times of its noise:
  // one rank with other micro batches then is 1 % off.
  run.model.init_std = 0.02;
  run.layout.numerics.precision = Precision::kFp8;
  run.sequence_length = 16;
  ModelConfig& model = run.model;
  model.ffn_hidden_size = 64;
  model.moe.ffn_hidden_size = 32;
  if (model.moe.shared_ffn_hidden_size > 0) model.moe.shared_ffn_hidden_size = 64;
  if (model.latent.used()) {
    model.latent = {.q_lora_rank = 16,
                    .kv_lora_rank = 16,
                    .qk_nope_head_dim = 8,
                    .qk_rope_head_dim = 8,
                    .v_head_dim = 8};
  }
  return run;
}

}  // namespace trimtab
