#include "cost_model/validation/published_case.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "cost_model/hardware/numerics.h"
#include "cost_model/validation/published_attention.h"
#include "cost_model/validation/published_switches.h"
#include "cost_model/validation/published_words.h"
#include "engine/base/error.h"
#include "engine/base/plain_name.h"
#include "engine/config/rules/rules.h"

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

/// Words for activations, in the order in which they are looked for, and the one they mean: without
/// a gate, and with one.
struct ActivationWord {
  std::string_view plain;
  ActivationKind alone;
  ActivationKind gated;
};
constexpr ActivationWord kActivationWords[] = {
    {"squaredrelu", ActivationKind::kSquaredRelu, ActivationKind::kSwiGlu},
    {"relu2", ActivationKind::kSquaredRelu, ActivationKind::kSwiGlu},
    {"gelu", ActivationKind::kGelu, ActivationKind::kGeGlu},
    {"geglu", ActivationKind::kGelu, ActivationKind::kGeGlu},
    {"silu", ActivationKind::kGelu, ActivationKind::kSwiGlu},
    {"swi", ActivationKind::kGelu, ActivationKind::kSwiGlu},  // swish, SwiGLU
    {"relu", ActivationKind::kRelu, ActivationKind::kSwiGlu},
};

ActivationKind ActivationOf(const Reading& reading) {
  const PublishedModel& from = reading.row.model;
  const bool gated = from.gated();
  const std::string told = PlainName(from.activation);
  for (const ActivationWord& word : kActivationWords) {
    if (told.find(word.plain) == std::string::npos) continue;
    return gated ? word.gated : word.alone;
  }
  if (!told.empty() || from.ffn_kind.empty()) {
    reading.Assume(fmt::format("{} as {}", told.empty() ? "the MLP" : from.activation,
                               gated ? "SwiGLU" : "two matrices around GELU"));
  }
  return gated ? ActivationKind::kSwiGlu : ActivationKind::kGelu;
}

void ReadModel(const Reading& reading) {
  const PublishedModel& from = reading.row.model;
  ModelConfig& model = reading.into.run.model;
  model.name = from.name;
  model.vocab_size = from.vocab;
  model.hidden_size = from.hidden;
  model.num_layers = from.layers;
  model.num_heads = from.heads;
  model.num_kv_heads = from.KvHeads();
  model.ffn_hidden_size = from.ffn;
  model.max_sequence_length = from.sequence;
  model.tied_embeddings = from.tied_embeddings;
  model.activation = ActivationOf(reading);
  if (from.gated()) model.norm = NormKind::kRmsNorm;
  if (from.gated() || model.activation == ActivationKind::kSquaredRelu) {  // as in their models
    model.position = PositionKind::kRope;
    model.bias = false;
  }
  model.head_dim = from.head_dim;
  if (reading.row.framework.find("ALiBi") != std::string::npos) {
    model.position = PositionKind::kAlibi;
  }
  if (from.kv_lora_rank > 0) {
    model.head_dim = 0;
    model.latent = {.q_lora_rank = from.q_lora_rank,
                    .kv_lora_rank = from.kv_lora_rank,
                    .qk_nope_head_dim = from.qk_head_dim,
                    .qk_rope_head_dim = from.qk_rope_head_dim,
                    .v_head_dim = from.v_head_dim};
  } else if (const std::optional<AttentionSpan> span = SpanOf(reading.row)) {
    model.sliding_window = span->window;
    model.full_attention_period = span->period;
  } else {
    reading.Refuse("attention: " + from.attention);
  }
  if (from.experts == 0) return;
  model.moe.num_experts = from.experts;
  model.moe.router_topk = from.topk;
  model.moe.ffn_hidden_size = from.MoeFfn();
  model.moe.shared_ffn_hidden_size = from.shared_expert_ffn;
  model.moe.first_k_dense = from.first_dense_layers;
  if (from.capacity_factor > 1) {
    reading.Assume(fmt::format("experts without padding to {} times", from.capacity_factor));
  }
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
  for (const std::string& module : row.recompute_modules) {
    const std::string meant = MeaningOf(module, kModuleWords).value_or("");
    const bool dense_of_moe = meant == "mlp" && row.model.experts > 0;  // the experts are "moe"
    if (meant == "core_attn") {
      plan.modules.Add(RecomputeModule::kCoreAttn);
    } else if (meant == "layernorm") {
      plan.modules.Add(RecomputeModule::kLayerNorm);
    } else if (meant == "mlp_act") {
      plan.modules.Add(RecomputeModule::kMlpAct);
    } else if ((meant == "mlp" || meant == "moe") && !dense_of_moe) {
      plan.modules.Add(RecomputeModule::kMlp);
    } else {
      const std::string what = dense_of_moe ? "the few dense layers' MLP" : module;
      reading.Assume(fmt::format("{} is not recomputed", what));
    }
  }
  if (plan.modules.bits != 0) return plan;
  if (!row.recompute_modules.empty()) return {};
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

/// Others have gradients in fp16 too, which the engine has not: all as if it were bf16, also on a
/// GPU that multiplies nothing but fp16.
void TakeFp16ForBf16(const Reading& reading) {
  auto& peaks = reading.into.cluster.profile.peak_flops;
  const auto fp16 = peaks.find("fp16");
  if (fp16 != peaks.end()) peaks.try_emplace("bf16", fp16->second);
  reading.Assume("fp16 at the speed and sizes of bf16");
}

void ReadPrecision(const Reading& reading) {
  const PublishedRun& row = reading.row;
  ParallelConfig& layout = reading.into.run.layout;
  SoftwareStack& stack = reading.into.cluster.stack;
  if (row.precision == "fp8" && reading.into.run.model.moe.used()) {
    // The engine has no experts in fp8.
    layout.numerics.precision = Precision::kBf16;
    stack.fp8_layers = true;
  } else if (row.precision == "fp8") {
    layout.numerics.precision = Precision::kFp8;
  } else if (row.precision == "bf16" || row.precision == "fp16") {
    layout.numerics.precision = Precision::kBf16;
    if (row.precision == "fp16") TakeFp16ForBf16(reading);
  } else {
    reading.Refuse(fmt::format("precision \"{}\" is not a known value", row.precision));
  }
  const std::string type = PlainName(row.gradient_type);
  bool fp32 = type.starts_with("fp32") || type.starts_with("float32");
  const bool bf16 = type.starts_with("bf16") || type.starts_with("bfloat16") ||
                    type.starts_with("fp16") || type.starts_with("float16");
  if (!fp32 && !bf16) {
    fp32 = stack.fp32_gradients;
    if (!type.empty()) reading.Assume("gradients as usual, not " + row.gradient_type);
  }
  layout.numerics.gradients = fp32 ? DType::kF32 : DType::kBf16;
  constexpr int64_t kMinimalState = 10;  // bytes a parameter
  if (row.state_bytes > 0 && row.state_bytes <= kMinimalState) {
    SetOptimizerState("minimal", layout.numerics);
  }
}

Schedule ScheduleOf(const Reading& reading) {
  const PublishedLayout& from = reading.row.layout;
  const std::string told = PlainName(from.schedule);
  const Schedule usual = from.vp > 1 ? Schedule::kInterleaved1F1B : Schedule::k1F1B;
  if (from.pp == 1 || told.empty() || told.find("1f1b") != std::string::npos) return usual;
  if (told == "gpipe") return Schedule::kGpipe;
  if (told.starts_with("zb") || told.starts_with("zerobubble")) return Schedule::kZeroBubble;
  if (told == "dualpipe" && from.vp == 1) {
    // Both leave idle what the weights' parts of backward passes cannot fill.
    reading.Assume(fmt::format("schedule {} as {}, which keeps its weights once", from.schedule,
                               Name(Schedule::kZeroBubble)));
    return Schedule::kZeroBubble;
  }
  reading.Assume(fmt::format("schedule {} as {}", from.schedule, Name(usual)));
  return usual;
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
  if (layout.zero == 2 && layout.pp > 1 && accumulates) {
    reading.Assume("gradients of a pipeline are reduced once a step");
    layout.zero = 1;
  }
  if (layout.zero > 0 && from.shard > 1 && from.shard < data_ranks) layout.shard = from.shard;
  layout.overlap_grad_reduce = stack.overlap_grad_reduce;
  layout.overlap_param_gather =
      stack.overlap_param_gather && (layout.zero == 1 || layout.zero == 2);
  layout.schedule = ScheduleOf(reading);
  layout.micro_batch = row.micro_batch;
  layout.recompute = RecomputeOf(reading);
  if (layout.world_size() != row.hardware.gpus) {
    reading.Refuse(fmt::format("tp x cp x pp x dp is {}, and there are {} GPUs",
                               layout.world_size(), row.hardware.gpus));
  }
}

void ReadCluster(const Reading& reading) {
  const PublishedHardware& from = reading.row.hardware;
  if (from.gpu.empty()) return reading.Refuse("not told: hardware.gpu");
  // "A100" beside 40 GB is another than beside 80.
  const HardwareProfile* profile =
      FindBuiltinProfile(fmt::format("{} {}GB", from.gpu, from.memory_bytes / 1e9));
  if (profile == nullptr) profile = FindBuiltinProfile(from.gpu);
  if (profile == nullptr || profile->device != DeviceKind::kCuda) {
    reading.Refuse("no profile of the GPU " + from.gpu);
    return;
  }
  Cluster& cluster = reading.into.cluster;
  cluster.device = DeviceKind::kCuda;
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
  result.assumptions = published.assumed;
  result.refusal = published.Incomplete();
  if (!result.refusal.empty()) return result;
  ReadCluster(reading);
  result.release = published.Release();
  if (result.release == 0) {
    constexpr double kUsual = 2024.5;
    result.release = kUsual;
    reading.Assume("no year is told, so 2024");
  }
  result.cluster.stack = StackOfFramework(published.framework, result.release);
  if (result.cluster.stack.usual) {
    reading.Assume(
        fmt::format("{} as the stack {}",
                    published.framework.empty() ? "no framework is told, so" : published.framework,
                    result.cluster.stack.name));
  }
  result.run.device = DeviceKind::kCuda;
  result.run.global_batch = published.global_batch;
  result.run.sequence_length = published.model.sequence;
  ReadModel(reading);
  ReadPrecision(reading);
  ApplySwitches(published, result.cluster.stack);
  std::string kernel = ApplyKernel(published, result.release, result.cluster.stack);
  if (!kernel.empty()) reading.Assume(std::move(kernel));
  ReadLayout(reading);
  if (!result.refusal.empty()) return result;
  const Rule* broken = FirstBrokenRule(result.run);
  if (broken != nullptr) {
    reading.Refuse(fmt::format("{}: {}", broken->id, broken->message(result.run)));
  }
  return result;
}

}  // namespace trimtab
