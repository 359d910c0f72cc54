#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/schedule/chunks.h"
#include "export/megatron/options.h"

namespace trimtab {
namespace {

/// "Et*3|t*4|...|t*3L": layers of each chunk, with the embedding and the loss.
std::string PipelineLayout(const std::vector<LayerRange>& chunks) {
  std::string text = "E";
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    if (chunk > 0) text += "|";
    if (chunks[chunk].count > 0) text += fmt::format("t*{}", chunks[chunk].count);
  }
  return text + "L";
}

void AddPipeline(const RunConfig& run, MegatronOptions& options) {
  const ParallelConfig& layout = run.layout;
  options.Require(layout.schedule == Schedule::k1F1B ||
                      layout.schedule == Schedule::kInterleaved1F1B || layout.pp == 1,
                  fmt::format("schedule={}", Name(layout.schedule)));
  options.Add("--pipeline-model-parallel-size", layout.pp);
  const std::vector<LayerRange> chunks =
      CutLayers(run.model.num_layers, layout.pp * layout.vp, layout.stages);
  const bool even = std::all_of(chunks.begin(), chunks.end(), [&](const LayerRange& chunk) {
    return chunk.count == chunks.front().count;
  });
  if (!even) {
    options.Add("--pipeline-model-parallel-layout", PipelineLayout(chunks));
  } else if (layout.vp > 1) {
    options.Add("--num-virtual-stages-per-pipeline-rank", layout.vp);
  }
}

void AddSharding(const ParallelConfig& layout, MegatronOptions& options) {
  if (layout.overlap_grad_reduce && layout.dp * layout.cp > 1) {
    options.Add("--overlap-grad-reduce");
  }
  if (layout.zero == 0) return;
  options.Add("--use-distributed-optimizer");
  if (layout.overlap_param_gather) options.Add("--overlap-param-gather");
  if (layout.zero >= 2) {
    options.Require(layout.zero < 3 || layout.reshard_after_forward,
                    "reshard_after_forward=0 with zero=3");
    options.Add("--use-megatron-fsdp");
    options.Add("--data-parallel-sharding-strategy",
                layout.zero == 2 ? "optim_grads" : "optim_grads_params");
    options.Add("--ckpt-format", "fsdp_dtensor");  // it knows no other, and asks even without one
  }
  const int64_t replicas = layout.shard > 0 ? layout.dp * layout.cp / layout.shard : 1;
  if (replicas > 1) options.Add("--num-distributed-optimizer-instances", replicas);
}

void AddRecompute(const RunConfig& run, MegatronOptions& options) {
  const StageRecompute& stages = run.layout.recompute;
  options.Require(stages.runs().size() == 1, "a recompute plan that differs by stage");
  const RecomputeConfig& plan = stages[0];
  if (plan.kind == RecomputeKind::kFull) {
    const bool uniform = plan.method == RecomputeMethod::kUniform;
    options.Add("--recompute-granularity", "full");
    // All layers, each on its own, is uniform by one.
    options.Add("--recompute-method", uniform || plan.num_layers < 0 ? "uniform" : "block");
    options.Add("--recompute-num-layers", int64_t{plan.num_layers < 0 ? 1 : plan.num_layers});
  }
  if (plan.kind != RecomputeKind::kSelective) return;
  MegatronOption modules = {"--recompute-modules"};
  for (int i = 0; i < kRecomputeModuleCount; ++i) {
    const auto module = static_cast<RecomputeModule>(i);
    if (!plan.modules.Has(module)) continue;
    const bool moe_act = module == RecomputeModule::kMlpAct && run.model.moe.used();
    options.Require(
        module != RecomputeModule::kLogits && (module != RecomputeModule::kMlpAct || moe_act),
        fmt::format("recompute=selective:{}", Name(module)));
    modules.values.emplace_back(moe_act ? "moe_act" : Name(module));
  }
  options.Add("--recompute-granularity", "selective");
  options.Add(std::move(modules));
}

void AddPrecision(const RunConfig& run, MegatronOptions& options) {
  const ParallelConfig& layout = run.layout;
  options.Require(layout.numerics.precision != Precision::kTf32, "precision=tf32");
  if (layout.numerics.precision == Precision::kFp32) return;
  options.Add(layout.numerics.precision == Precision::kFp16 ? "--fp16" : "--bf16");
  if (layout.numerics.precision == Precision::kFp16) {
    options.Add("--initial-loss-scale", run.loss_scale.initial);
    options.Add("--min-loss-scale", run.loss_scale.minimum);
    options.Add("--loss-scale-window", run.loss_scale.growth_interval);
  }
  if (layout.numerics.precision == Precision::kFp8) {
    options.Require(run.fp8.bf16_layers.empty(), "fp8.bf16_layers");
    options.Require(!run.fp8.fast_gradients, "fp8.fast_gradients");
    options.Add("--fp8-format", "hybrid");
    options.Add("--fp8-recipe", run.fp8.scaling == "delayed" ? "delayed" : "tensorwise");
    if (run.fp8.scaling == "delayed") {
      options.Add("--fp8-amax-history-len", run.fp8.history);
      options.Add("--fp8-amax-compute-algo", "max");
    }
  }
  options.Add(layout.numerics.gradients == DType::kF32 ? "--accumulate-allreduce-grads-in-fp32"
                                                       : "--grad-reduce-in-bf16");
  options.Require(layout.numerics.moments != DType::kI8, "moments=int8");
  const bool small_moments = layout.numerics.moments != DType::kF32;
  if (layout.numerics.master == MasterWeights::kFp32 && !small_moments) return;
  options.Require(layout.zero >= 1, "this optimizer state without zero=1 or more");
  options.Add("--use-precision-aware-optimizer");
  if (small_moments) {
    options.Add("--exp-avg-dtype", Name(layout.numerics.moments));
    options.Add("--exp-avg-sq-dtype", Name(layout.numerics.moments));
  }
}

}  // namespace

void AddMegatronLayout(const RunConfig& run, MegatronOptions& options) {
  const ParallelConfig& layout = run.layout;
  options.Add("--tensor-model-parallel-size", layout.tp);
  if (layout.sequence_parallel) options.Add("--sequence-parallel");
  if (layout.tp_overlap_chunks > 1) options.Add("--tp-comm-overlap");
  if (layout.cp > 1) {
    options.Add("--context-parallel-size", layout.cp);
    options.Add("--cp-comm-type", Name(layout.cp_comm_type));
  }
  AddPipeline(run, options);
  AddSharding(layout, options);
  AddRecompute(run, options);
  AddPrecision(run, options);
}

int64_t MegatronConnections(const ParallelConfig& layout) {
  constexpr int64_t kSeveral = 8;
  if (layout.zero >= 2) return kSeveral;
  return layout.tp * layout.cp > 1 ? 1 : 0;
}

}  // namespace trimtab
