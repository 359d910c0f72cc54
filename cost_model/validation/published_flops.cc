#include "cost_model/validation/published_flops.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace trimtab {
namespace {

/// Elements of the matrices of one layer's attention.
double AttentionWeights(const PublishedModel& model) {
  const int64_t hidden = model.hidden;
  if (model.kv_lora_rank == 0) {
    return static_cast<double>(hidden * 2 * (model.heads + model.KvHeads()) * model.HeadSize());
  }
  const int64_t queries = model.heads * (model.qk_head_dim + model.qk_rope_head_dim);
  const int64_t query =
      model.q_lora_rank > 0 ? model.q_lora_rank * (hidden + queries) : hidden * queries;
  const int64_t down = hidden * (model.kv_lora_rank + model.qk_rope_head_dim);
  const int64_t up = model.kv_lora_rank * model.heads * (model.qk_head_dim + model.v_head_dim);
  return static_cast<double>(query + down + up + model.heads * model.v_head_dim * hidden);
}

/// Of a row that says it in tokens or seconds; else 0.
double ToldTokensPerSecondPerGpu(const PublishedRun& run) {
  const PublishedMeasurement& measured = run.measured;
  const auto sequence = static_cast<double>(run.model.sequence);
  const auto gpus = static_cast<double>(run.hardware.gpus);
  if (measured.tokens_per_s_per_gpu > 0) return measured.tokens_per_s_per_gpu;
  if (measured.step_time_s > 0) {
    return static_cast<double>(run.global_batch) * sequence / measured.step_time_s / gpus;
  }
  return measured.samples_per_s > 0 ? measured.samples_per_s * sequence / gpus : 0;
}

/// Of the layers, those that run again before their backward pass.
double ShareRunAgain(const PublishedRun& run) {
  if (run.recompute == "full") return 1;
  if (run.recompute != "block") return 0;
  const auto layers = static_cast<double>(run.recompute_layers * run.layout.pp * run.layout.vp);
  return std::min(1.0, layers / static_cast<double>(run.model.layers));
}

}  // namespace

double FlopsPerToken(const PublishedRun& run, bool causal_attention, bool hardware) {
  const PublishedModel& model = run.model;
  const auto hidden = static_cast<double>(model.hidden);
  const double matrices = model.gated() ? 3 : 2;
  const bool moe = model.experts > 0;
  const double moe_ffn =
      moe ? static_cast<double>(model.topk * model.MoeFfn() + model.shared_expert_ffn) : 0;
  const auto dense_layers = static_cast<double>(moe ? model.first_dense_layers : model.layers);
  const auto layers = static_cast<double>(model.layers);
  const double attention_weights = AttentionWeights(model);
  const double mlp_weights =
      matrices * hidden *
      (dense_layers * static_cast<double>(model.ffn) + (layers - dense_layers) * moe_ffn);
  const double columns =
      static_cast<double>(model.heads) *
      (static_cast<double>(model.kv_lora_rank > 0
                               ? model.qk_head_dim + model.qk_rope_head_dim + model.v_head_dim
                               : 2 * model.HeadSize()));
  const double attention =
      2 * columns * static_cast<double>(model.sequence) * (causal_attention ? 0.5 : 1.0);
  const double layer_forward = 2 * (layers * attention_weights + mlp_weights) + layers * attention;
  const double again = hardware ? ShareRunAgain(run) : 0;
  return (3 + again) * layer_forward + 6 * hidden * static_cast<double>(model.vocab);
}

void FindAttentionConventions(std::vector<PublishedRun>& runs) {
  struct Misfit {
    double full = 0;
    double causal = 0;
  };
  std::map<std::string, Misfit> by_source;
  for (const PublishedRun& run : runs) {
    const double tokens = ToldTokensPerSecondPerGpu(run);
    const double flops = run.measured.tflops_per_gpu * 1e12;
    if (run.measured.causal_attention || tokens <= 0 || flops <= 0) continue;
    if (!run.Incomplete().empty()) continue;
    Misfit& misfit = by_source[run.source];
    misfit.full +=
        std::abs(std::log(flops / tokens / FlopsPerToken(run, false, run.measured.hardware_flops)));
    misfit.causal +=
        std::abs(std::log(flops / tokens / FlopsPerToken(run, true, run.measured.hardware_flops)));
  }
  for (PublishedRun& run : runs) {
    const auto misfit = by_source.find(run.source);
    if (run.measured.causal_attention || misfit == by_source.end()) continue;
    run.measured.causal_attention = misfit->second.causal < misfit->second.full;
  }
}

double PublishedRun::TokensPerSecondPerGpu(double peak_flops) const {
  const double told = ToldTokensPerSecondPerGpu(*this);
  if (told > 0) return told;
  // Only where nothing else is told, a utilisation with what is recomputed.
  const bool with_recomputation =
      measured.tflops_per_gpu > 0 || measured.mfu > 0 ? measured.hardware_flops : measured.hfu > 0;
  double flops = measured.tflops_per_gpu * 1e12;
  if (flops <= 0) {
    const double share = measured.mfu > 0 ? measured.mfu : measured.hfu;
    flops = share * (measured.peak_tflops > 0 ? measured.peak_tflops * 1e12 : peak_flops);
  }
  const bool causal = measured.causal_attention.value_or(false);
  return flops / FlopsPerToken(*this, causal, with_recomputation);
}

}  // namespace trimtab
