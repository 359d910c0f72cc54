#include "engine/config/model/model_limits.h"
#include "engine/config/rules/rule_parts.h"

namespace trimtab {
namespace {

/// The first plan that recomputes layers which the model does not have, or nullptr.
const RecomputeConfig* ImpossiblePlan(const RunConfig& run) {
  for (const StageRecompute::Run& stages : run.layout.recompute.runs()) {
    const RecomputeConfig& plan = stages.plan;
    if (plan.kind == RecomputeKind::kNone || plan.num_layers == -1) continue;
    if (plan.num_layers < 1 || plan.num_layers > run.model.num_layers) return &plan;
  }
  return nullptr;
}

constexpr Rule kStepRules[] = {
    {"resharding-requires-sharded-weights", "Only sharded weights are freed after a forward pass.",
     [](const RunConfig& run) { return run.layout.reshard_after_forward || run.layout.zero == 3; },
     [](const RunConfig& run) {
       return fmt::format("reshard_after_forward=0 goes with zero=3, and zero is {}",
                          run.layout.zero);
     }},
    {"zero-requires-dp", "What is sharded is so over the data- and context-parallel ranks.",
     [](const RunConfig& run) { return run.layout.zero == 0 || run.layout.dp * run.layout.cp > 1; },
     [](const RunConfig& run) {
       return fmt::format("zero={} needs dp x cp of at least 2, and dp is {}, cp {}",
                          run.layout.zero, run.layout.dp, run.layout.cp);
     }},
    {"shard-requires-zero", "The ranks that share a replica share what is sharded.",
     [](const RunConfig& run) { return run.layout.shard == 0 || run.layout.zero >= 1; },
     [](const RunConfig& run) {
       return fmt::format("shard={} needs zero of at least 1, and zero is 0", run.layout.shard);
     }},
    {"shard-divides-data-ranks", "Sharded replicas are of equal size, of two ranks or more.",
     [](const RunConfig& run) {
       const ParallelConfig& p = run.layout;
       return p.shard == 0 || (p.shard >= 2 && p.dp * p.cp % p.shard == 0);
     },
     [](const RunConfig& run) {
       return fmt::format("shard={} must divide dp x cp = {} and be at least 2", run.layout.shard,
                          run.layout.dp * run.layout.cp);
     }},
    {"param-gather-overlap-requires-whole-weights",
     "What is updated in shards and kept whole can be gathered beside the next forward pass; "
     "sharded weights always are gathered beside passes.",
     [](const RunConfig& run) {
       return !run.layout.overlap_param_gather || run.layout.zero == 1 || run.layout.zero == 2;
     },
     [](const RunConfig& run) {
       return fmt::format("overlap_param_gather=1 goes with zero=1 and zero=2, and zero is {}",
                          run.layout.zero);
     }},
    {"global-batch-divisible",
     "Every data-parallel rank runs the same number of whole micro batches.",
     [](const RunConfig& run) {
       return run.global_batch % (run.layout.micro_batch * run.layout.dp) == 0;
     },
     [](const RunConfig& run) {
       return fmt::format("global_batch {} is not divisible by mbs {} x dp {}", run.global_batch,
                          run.layout.micro_batch, run.layout.dp);
     }},
    {"micro-batches-at-most", "A step has no more micro batches than anybody would wait for.",
     [](const RunConfig& run) { return run.num_micro_batches() <= kMaxMicroBatches; },
     [](const RunConfig& run) {
       return fmt::format("{} micro batches a step; expected at most {}", run.num_micro_batches(),
                          kMaxMicroBatches);
     }},
    {"micro-batches-divisible-by-pp",
     "The interleaved schedule takes micro batches in groups of the pipeline's size.",
     [](const RunConfig& run) {
       return run.layout.schedule != Schedule::kInterleaved1F1B ||
              run.num_micro_batches() % run.layout.pp == 0;
     },
     [](const RunConfig& run) {
       return fmt::format(
           "with schedule=interleaved-1f1b, {} micro batches are not divisible by "
           "pp {}",
           run.num_micro_batches(), run.layout.pp);
     }},
    {"recompute-plan-per-stage", "A list of recompute plans has one for every pipeline stage.",
     [](const RunConfig& run) {
       const int64_t stages = run.layout.recompute.size();
       return stages == 0 || stages == run.layout.pp;
     },
     [](const RunConfig& run) {
       return fmt::format("recompute={} lists {} stages, and pp is {}",
                          ToString(run.layout.recompute), run.layout.recompute.size(),
                          run.layout.pp);
     }},
    {"recompute-layers-within-model", "No more layers are recomputed than the model has.",
     [](const RunConfig& run) { return ImpossiblePlan(run) == nullptr; },
     [](const RunConfig& run) {
       return fmt::format("recompute of {} layers, and the model has {}",
                          ImpossiblePlan(run)->num_layers, run.model.num_layers);
     }},
};

}  // namespace

std::span<const Rule> StepRules() { return kStepRules; }

}  // namespace trimtab
