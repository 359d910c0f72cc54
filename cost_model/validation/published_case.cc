#include "cost_model/validation/published_case.h"

#include <algorithm>
#include <cmath>

#include "cost_model/numerics.h"
#include "cost_model/validation/published_switches.h"
#include "engine/base/error.h"
#include "engine/config/rules.h"

namespace trimtab {
namespace {

/// What is read of a row so far.
struct Reading {
  const PublishedRun& row;
  PublishedCase& into;

  void Assume(std::string what) const { into.assumptions.push_back(std::move(what)); }
  /// Keeps the first reason.
  void Refuse(std::string why) const {
    if (into.refusal.empty()) into.refusal = std::move(why);
  }
};

void ReadModel(const Reading& reading) {
  const PublishedModel& from = reading.row.model;
  ModelConfig& model = reading.into.run.model;
  model.name = from.name;
  model.vocab_size = from.vocab;
  model.hidden_size = from.hidden;
  model.num_layers = from.layers;
  model.num_heads = from.heads;
  model.num_kv_heads = from.kv_heads > 0 ? from.kv_heads : from.heads;
  model.ffn_hidden_size = from.ffn;
  model.max_sequence_length = from.sequence;
  model.tied_embeddings = from.tied_embeddings;
  if (from.ffn_kind == "swiglu") {
    model.activation = ActivationKind::kSwiGlu;
    model.norm = NormKind::kRmsNorm;
    model.position = PositionKind::kRope;
    model.bias = false;
  }
  if (!from.activation.empty()) {
    const bool squared = from.activation.find("squared ReLU") != std::string::npos;
    model.activation = squared ? ActivationKind::kSquaredRelu : ActivationKind::kGeGlu;
    model.position = PositionKind::kRope;
    model.bias = false;
  }
  model.head_dim = from.head_dim;
  if (reading.row.framework.find("ALiBi") != std::string::npos) {
    model.position = PositionKind::kAlibi;
  }
  if (from.attention.find("sliding window 128") != std::string::npos) {
    model.sliding_window = 128;  // in every second layer: GPT-OSS
    model.full_attention_period = 2;
  } else if (from.kv_lora_rank > 0) {
    model.head_dim = 0;
    model.latent = {.q_lora_rank = from.q_lora_rank,
                    .kv_lora_rank = from.kv_lora_rank,
                    .qk_nope_head_dim = from.qk_head_dim,
                    .qk_rope_head_dim = from.qk_rope_head_dim,
                    .v_head_dim = from.v_head_dim};
  } else if (!from.attention.empty()) {
    reading.Refuse("attention: " + from.attention);
  }
  if (from.experts == 0) return;
  model.moe.num_experts = from.experts;
  model.moe.router_topk = from.topk;
  model.moe.ffn_hidden_size = from.moe_ffn > 0 ? from.moe_ffn : from.ffn;
  model.moe.shared_ffn_hidden_size = from.shared_expert_ffn;
  model.moe.first_k_dense = from.first_dense_layers;
  // Benchmarks balance their experts, or pad each to the same number of tokens.
  reading.into.run.routing.force_balance = true;
}

RecomputeConfig FirstLayers(int64_t layers) {
  return {.kind = RecomputeKind::kFull, .num_layers = static_cast<int32_t>(layers)};
}

RecomputeConfig SelectiveOf(const Reading& reading) {
  const PublishedRun& row = reading.row;
  const int64_t chunks = row.layout.pp * row.layout.vp;
  if (row.measured.hfu > row.measured.mfu && row.measured.mfu > 0 &&
      row.recompute_modules.empty()) {
    // A forward pass is a third of the model's FLOPs.
    const double share = std::min(1.0, 3 * (row.measured.hfu / row.measured.mfu - 1));
    reading.Assume("as many layers recomputed as HFU / MFU says");
    const double layers = share * static_cast<double>(row.model.layers / chunks);
    return FirstLayers(std::max<int64_t>(1, std::llround(layers)));
  }
  if (RecomputesByOp(row)) return {.kind = RecomputeKind::kFull};
  if (row.recompute_detail.find("every 2nd layer") != std::string::npos ||
      row.recompute_detail.find("per-op") != std::string::npos ||
      row.framework.find("FSDP") != std::string::npos) {
    reading.Assume("selective recomputation as half of the layers");
    return FirstLayers(std::max<int64_t>(1, row.model.layers / chunks / 2));
  }
  RecomputeConfig plan = {.kind = RecomputeKind::kSelective};
  bool only_dense = !row.recompute_modules.empty();
  for (const std::string& module : row.recompute_modules) {
    if (module == "core_attn") plan.modules.Add(RecomputeModule::kCoreAttn);
    if (module == "norm" || module == "layernorm") plan.modules.Add(RecomputeModule::kLayerNorm);
    if (module == "mlp_activation" || module == "moe_act") {
      plan.modules.Add(RecomputeModule::kMlpAct);
    }
    only_dense &= module == "mlp" && row.model.experts > 0;
    if (module == "mlp" && row.model.experts > 0) {
      // Megatron-Core's "mlp" is that of dense layers; "moe" would be the experts.
      reading.Assume("the few dense layers' MLP is not recomputed");
    } else if (module == "mlp" || module == "moe") {
      plan.modules.Add(RecomputeModule::kMlp);
    }
  }
  if (plan.modules.bits != 0) return plan;
  if (only_dense) return {};
  plan.modules.Add(RecomputeModule::kCoreAttn);
  reading.Assume("selective recomputation of the attention core");
  return plan;
}

RecomputeConfig RecomputeOf(const Reading& reading) {
  const PublishedRun& row = reading.row;
  if (row.recompute == "full") return {.kind = RecomputeKind::kFull};
  if (row.recompute == "block") return FirstLayers(std::max<int64_t>(1, row.recompute_layers));
  if (row.recompute == "selective") return SelectiveOf(reading);
  return {};
}

void ReadPrecision(const Reading& reading) {
  const PublishedRun& row = reading.row;
  ParallelConfig& layout = reading.into.run.layout;
  SoftwareStack& stack = reading.into.cluster.stack;
  if (row.precision == "fp8" && reading.into.run.model.moe.used()) {
    // The engine has no experts in fp8.
    layout.precision = Precision::kBf16;
    stack.fp8_layers = true;
  } else if (row.precision == "fp8") {
    layout.precision = Precision::kFp8;
  } else if (row.precision == "bf16" || row.precision == "fp16") {
    layout.precision = Precision::kBf16;
    if (row.precision == "fp16") reading.Assume("fp16 at the speed and sizes of bf16");
  } else {
    reading.Refuse("precision " + row.precision);
  }
  const bool fp32 =
      row.gradient_type.empty() ? stack.fp32_gradients : row.gradient_type.starts_with("fp32");
  layout.gradients = fp32 ? DType::kF32 : DType::kBf16;
  constexpr int64_t kMinimalState = 10;  // bytes a parameter
  if (row.state_bytes > 0 && row.state_bytes <= kMinimalState) {
    SetOptimizerState("minimal", layout);
  }
}

void ReadLayout(const Reading& reading) {
  const PublishedRun& row = reading.row;
  const PublishedLayout& from = row.layout;
  const SoftwareStack& stack = reading.into.cluster.stack;
  ParallelConfig& layout = reading.into.run.layout;
  layout.tp = from.tp;
  layout.sequence_parallel = from.sequence_parallel && from.tp > 1;
  layout.cp = from.cp;
  layout.pp = from.pp;
  layout.vp = from.vp;
  layout.ep = from.ep;
  layout.dp = from.dp;
  const int64_t data_ranks = from.dp * from.cp;
  layout.zero = data_ranks > 1 ? from.zero_stage : 0;
  const bool accumulates = row.global_batch > row.micro_batch * from.dp;
  if (stack.shards_at_step_end && accumulates) layout.zero = std::min<int64_t>(layout.zero, 1);
  if (layout.zero > 0 && from.shard > 1 && from.shard < data_ranks) layout.shard = from.shard;
  layout.overlap_grad_reduce = stack.overlap_grad_reduce;
  layout.overlap_param_gather =
      stack.overlap_param_gather && (layout.zero == 1 || layout.zero == 2);
  if (from.vp > 1) layout.schedule = Schedule::kInterleaved1F1B;
  layout.micro_batch = row.micro_batch;
  layout.recompute = RecomputeOf(reading);
  if (layout.world_size() != row.hardware.gpus) {
    reading.Refuse(fmt::format("tp x cp x pp x dp is {}, and there are {} GPUs",
                               layout.world_size(), row.hardware.gpus));
  }
}

void ReadCluster(const Reading& reading) {
  const PublishedHardware& from = reading.row.hardware;
  const HardwareProfile* profile = FindBuiltinProfile(from.gpu);
  if (profile == nullptr) {
    reading.Refuse("no profile of the GPU " + from.gpu);
    return;
  }
  Cluster& cluster = reading.into.cluster;
  cluster.device = "cuda";
  cluster.ranks_per_node = std::min(from.gpus_per_node, from.gpus);
  cluster.nodes = (from.gpus + cluster.ranks_per_node - 1) / cluster.ranks_per_node;
  cluster.max_ranks = cluster.nodes * cluster.ranks_per_node;
  cluster.cores = 0;
  cluster.profile = *profile;
  cluster.name = fmt::format("{}x{}x{}", cluster.nodes, cluster.ranks_per_node, profile->name);
  if (from.nvlink_domain > 0) cluster.profile.link_domain = from.nvlink_domain;
  if (from.network_gbit_per_s > 0) {
    constexpr double kBytesPerGbit = 1e9 / 8;
    cluster.profile.network_bandwidth.value = from.network_gbit_per_s * kBytesPerGbit;
    cluster.profile.network_bandwidth.source = "the published run";
  } else if (cluster.nodes > 1) {
    reading.Assume("the network of " + cluster.profile.network_bandwidth.source);
  }
  if (from.memory_bytes > 0) cluster.profile.memory_bytes.value = from.memory_bytes;
  cluster.memory_bytes = static_cast<int64_t>(cluster.profile.memory_bytes.value);
}

}  // namespace

PublishedCase CaseOf(const PublishedRun& published) {
  PublishedCase result;
  const Reading reading = {published, result};
  result.refusal = published.Incomplete();
  if (!result.refusal.empty()) return result;
  ReadCluster(reading);
  const SoftwareStack* stack = StackOfFramework(published.framework, published.Release());
  if (stack == nullptr) {
    reading.Assume(fmt::format("{} as our own engine", published.framework));
  } else {
    result.cluster.stack = *stack;
    result.release = published.Release();
  }
  result.run.device = "cuda";
  result.run.global_batch = published.global_batch;
  result.run.sequence_length = published.model.sequence;
  ReadModel(reading);
  ReadPrecision(reading);
  ApplySwitches(published, result.cluster.stack);
  ReadLayout(reading);
  if (!result.refusal.empty()) return result;
  const Rule* broken = FirstBrokenRule(result.run);
  if (broken != nullptr) {
    reading.Refuse(fmt::format("{}: {}", broken->id, broken->message(result.run)));
  }
  return result;
}

}  // namespace trimtab
