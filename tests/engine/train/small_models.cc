#include "tests/engine/train/small_models.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/config/rules/rules.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

MoeConfig MoeOf(SmallModel model) {
  switch (model) {
    case SmallModel::kGpt2:
    case SmallModel::kLlama:
    case SmallModel::kGemma3:
    case SmallModel::kOlmo3:
      break;
    case SmallModel::kMixtral:
      return {.num_experts = 8, .router_topk = 2, .ffn_hidden_size = 16, .aux_loss_coeff = 1e-2};
    case SmallModel::kDeepSeek:
      return {.num_experts = 16,
              .router_topk = 4,
              .ffn_hidden_size = 8,
              .shared_ffn_hidden_size = 16,
              .first_k_dense = 1,
              .score = RouterScore::kSigmoid,
              .norm_topk = true,
              .topk_scaling_factor = 2.5,
              .num_groups = 4,
              .group_topk = 2,
              .group_score = GroupScore::kSumOfTopTwo,
              .expert_bias = true};
    case SmallModel::kSwitch:
      return {.num_experts = 2,
              .router_topk = 1,
              .ffn_hidden_size = 32,
              .layer_freq = 2,
              .layer_offset = 1,
              .router = RouterKind::kSinkhorn,
              .score = RouterScore::kSigmoid,
              .z_loss_coeff = 1e-3,
              .capacity_factor = 1.0,
              .drop_policy = DropPolicy::kPosition};
  }
  return {};
}

void SetUpLocalLayers(ModelConfig& model) {
  model.sliding_window = 5;
  model.full_attention_period = 3;
  model.rope_theta = 1000;
  model.window_rope_theta = 100;
  model.rope_scaling = {.kind = RopeScalingKind::kLinear, .factor = 8};
  model.query_key_norm = true;
}

/// The stages without `count` layers of the longest.
StageLayers WithoutLayers(const StageLayers& stages, int64_t count) {
  if (stages.empty()) return stages;
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < stages.size(); ++i) layers.push_back(stages[i]);
  *std::max_element(layers.begin(), layers.end()) -= count;
  return StageLayers(layers);
}

}  // namespace

std::string_view Name(SmallModel model) {
  static constexpr std::string_view kNames[] = {"gpt2",   "llama",  "mixtral", "deepseek",
                                                "switch", "gemma3", "olmo3"};
  return kNames[static_cast<size_t>(model)];
}

RunConfig RunToLayOut(SmallModel model) {
  const bool gpt2 = model == SmallModel::kGpt2 || model == SmallModel::kSwitch;
  const bool threes = model == SmallModel::kLlama;
  const bool shares = model == SmallModel::kGpt2 || model == SmallModel::kOlmo3;
  RunConfig run = SmallRun(!gpt2);
  run.model.num_layers = 6;
  run.model.num_heads = threes ? 12 : 8;
  // Several tensor-parallel ranks may share one of two heads.
  run.model.num_kv_heads = threes ? 6 : shares ? 2 : 8;
  run.model.hidden_size = 2 * run.model.num_heads;
  run.model.ffn_hidden_size = threes ? 24 : 32;
  run.sequence_length = threes ? 12 : 16;
  run.global_batch = threes ? 12 : 8;
  run.model.moe = MoeOf(model);
  if (model == SmallModel::kDeepSeek) {
    run.model.rotary_interleaved = true;
    run.model.latent = {.q_lora_rank = 12,
                        .kv_lora_rank = 8,
                        .qk_nope_head_dim = 3,
                        .qk_rope_head_dim = 2,
                        .v_head_dim = 4};
  }
  if (model == SmallModel::kGemma3 || model == SmallModel::kOlmo3) SetUpLocalLayers(run.model);
  if (model == SmallModel::kGemma3) {
    run.model.block = BlockKind::kSandwich;
    run.model.norm_weight_plus_one = true;
    run.model.head_dim = 4;
  } else if (model == SmallModel::kOlmo3) {
    run.model.block = BlockKind::kReorderedNorm;
    run.model.query_key_norm_whole = true;
  }
  return run;
}

RunConfig RunToLayOutInFp8(bool llama) {
  RunConfig run = RunToLayOut(llama ? SmallModel::kLlama : SmallModel::kGpt2);
  run.model.num_heads = 4;
  run.model.num_kv_heads = llama ? 2 : 4;
  run.model.hidden_size = 64;
  run.model.ffn_hidden_size = 64;
  run.model.num_layers = 4;
  run.model.max_sequence_length = 32;
  run.sequence_length = 32;
  run.layout.numerics.precision = Precision::kFp8;
  return run;
}

RunConfig Shortened(RunConfig run) {
  ParallelConfig& layout = run.layout;
  const int64_t spare = run.model.num_layers - std::max<int64_t>(3, layout.pp * layout.vp + 1);
  if (spare > 0) {
    run.model.num_layers -= spare;
    layout.stages = WithoutLayers(layout.stages, spare);
  }
  const int64_t enough = layout.schedule == Schedule::kInterleaved1F1B
                             ? 2 * layout.pp
                             : std::max<int64_t>(3, layout.pp + 1);
  run.global_batch = std::min(run.num_micro_batches(), enough) * layout.micro_batch * layout.dp;
  RequireLegal(run);
  return run;
}

}  // namespace trimtab
