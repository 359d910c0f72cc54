#include "search/space_rows.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "cost_model/numerics.h"

namespace trimtab {
namespace {

/// Values are numbers; what they are numbers of is the row's own business.
using Values = std::vector<int64_t>;

bool Always(const Problem&, const RunConfig&) { return true; }

template <int64_t... kValues>
void Fixed(const Problem&, const RunConfig&, Values& values) {
  values.insert(values.end(), {kValues...});
}

/// Appends the divisors of `n` up to `largest`, ascending.
void AppendDivisors(int64_t n, int64_t largest, Values& values) {
  const auto first = static_cast<std::ptrdiff_t>(values.size());
  for (int64_t i = 1; i * i <= n; ++i) {
    if (n % i != 0) continue;
    if (i <= largest) values.push_back(i);
    if (i != n / i && n / i <= largest) values.push_back(n / i);
  }
  std::sort(values.begin() + first, values.end());
}

/// What the plans of the recompute row are, lightest first.
const std::array<RecomputeConfig, 4>& RecomputePlans() {
  static const std::array<RecomputeConfig, 4> plans = {
      ParseRecompute("none", "plan"), ParseRecompute("full", "plan"),
      ParseRecompute("selective:core_attn", "plan"),
      ParseRecompute("selective:core_attn+layernorm+mlp_act", "plan")};
  return plans;
}

constexpr std::array<Schedule, 4> kSchedules = {Schedule::k1F1B, Schedule::kInterleaved1F1B,
                                                Schedule::kZeroBubble, Schedule::kGpipe};

/// Optimizer states of the problem under the precision of `bound`, each once: two names may mean
/// the same.
std::vector<ParallelConfig> OptimizerStates(const Problem& problem, const RunConfig& bound) {
  std::vector<ParallelConfig> states;
  const auto append = [&](const std::string& name) {
    ParallelConfig layout;
    layout.precision = bound.layout.precision;
    SetOptimizerState(name, layout);
    if (std::find(states.begin(), states.end(), layout) == states.end()) states.push_back(layout);
  };
  for (const std::string& name : problem.optimizer_states) {
    if (name != "auto") {
      append(name);
      continue;
    }
    for (const std::string& each : EveryOptimizerState(bound.layout.precision)) append(each);
  }
  return states;
}

/// The ranks that no row has used yet are data parallel; a row takes its share of them.
void TakeRanks(int64_t count, int64_t& size, ParallelConfig& layout) {
  size = count;
  layout.dp /= count;
}

/// Ranks that are not yet told apart by the experts they hold, nor by their pipeline stage.
int64_t ExpertRanks(const ParallelConfig& layout) {
  return layout.tp * layout.cp * layout.dp / (layout.ep * layout.etp);
}

SpaceRow PrecisionRow() {
  return {.name = "precision",
          .applies = Always,
          .values =
              [](const Problem& problem, const RunConfig&, Values& values) {
                for (const Precision each : problem.precisions) {
                  const auto value = static_cast<int64_t>(each);
                  if (std::find(values.begin(), values.end(), value) == values.end()) {
                    values.push_back(value);
                  }
                }
              },
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { run.layout.precision = static_cast<Precision>(value); },
          // The model's own rules are settled before anything is bound.
          .settles = {"model-sizes-positive", "run-sizes-positive", "tf32-requires-cuda",
                      "hidden-divisible-by-heads", "heads-divisible-by-kv-heads",
                      "head-size-even-with-rope", "sequence-within-positions",
                      "rope-scaling-original-length"}};
}

SpaceRow OptimizerStateRow() {
  return {.name = "optimizer state",
          .applies = Always,
          .values =
              [](const Problem& problem, const RunConfig& bound, Values& values) {
                const size_t count = OptimizerStates(problem, bound).size();
                for (size_t i = 0; i < count; ++i) values.push_back(static_cast<int64_t>(i));
              },
          .bind =
              [](const Problem& problem, int64_t value, RunConfig& run) {
                const ParallelConfig state =
                    OptimizerStates(problem, run)[static_cast<size_t>(value)];
                run.layout.master = state.master;
                run.layout.moments = state.moments;
                run.layout.gradients = state.gradients;
              },
          .settles = {"remainder-requires-bf16-weights", "bf16-gradients-require-bf16-weights"},
          .alone = true};
}

/// How many ranks a run has: on cpu that is itself a choice.
SpaceRow RanksRow() {
  return {.name = "ranks",
          .applies = Always,
          .values =
              [](const Problem& problem, const RunConfig&, Values& values) {
                const Cluster& cluster = problem.cluster;
                if (cluster.device != "cpu") return values.push_back(cluster.max_ranks);
                const int64_t most = problem.max_ranks > 0 ? problem.max_ranks : cluster.max_ranks;
                for (int64_t ranks = 1; ranks <= most; ranks *= 2) values.push_back(ranks);
              },
          .bind =
              [](const Problem& problem, int64_t value, RunConfig& run) {
                run.layout.dp = value;
                run.threads_per_rank = problem.cluster.device == "cpu"
                                           ? std::max<int64_t>(1, problem.cluster.cores / value)
                                           : 1;
                run.memory_per_rank_bytes = MemoryLimitBytes(problem, run);
              },
          .settles = {}};
}

SpaceRow TensorParallelRow() {
  return {
      .name = "tp",
      .applies = Always,
      .values = [](const Problem&, const RunConfig& bound,
                   Values& values) { AppendDivisors(bound.layout.dp, bound.layout.dp, values); },
      .bind = [](const Problem&, int64_t value,
                 RunConfig& run) { TakeRanks(value, run.layout.tp, run.layout); },
      .settles = {"heads-divisible-by-tp", "kv-heads-divisible-by-tp", "ffn-divisible-by-tp",
                  "shared-experts-divisible-by-tp"}};
}

SpaceRow SequenceParallelRow() {
  return {.name = "sp",
          .applies = [](const Problem&, const RunConfig& bound) { return bound.layout.tp > 1; },
          .values =
              [](const Problem& problem, const RunConfig&, Values& values) {
                if (!problem.model.moe.used()) values.push_back(0);  // experts need it
                values.push_back(1);
              },
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { run.layout.sequence_parallel = value != 0; },
          .settles = {},
          .alone = true};
}

SpaceRow ContextParallelRow() {
  return {.name = "cp",
          .applies = Always,
          .values =
              [](const Problem& problem, const RunConfig& bound, Values& values) {
                AppendDivisors(bound.layout.dp, std::max<int64_t>(1, problem.sequence_length / 2),
                               values);
              },
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { TakeRanks(value, run.layout.cp, run.layout); },
          .settles = {"sequence-divisible-by-2cp"}};
}

SpaceRow ContextMessagesRow() {
  return {.name = "cp_comm_type",
          .applies = [](const Problem&, const RunConfig& bound) { return bound.layout.cp > 1; },
          .values =
              [](const Problem&, const RunConfig&, Values& values) {
                for (const CpCommType each : {CpCommType::kP2p, CpCommType::kAllGather}) {
                  values.push_back(static_cast<int64_t>(each));
                }
              },
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { run.layout.cp_comm_type = static_cast<CpCommType>(value); },
          .settles = {"cp-comm-type-requires-cp"},
          .alone = true};
}

SpaceRow PipelineParallelRow() {
  return {.name = "pp",
          .applies = Always,
          .values =
              [](const Problem& problem, const RunConfig& bound, Values& values) {
                AppendDivisors(bound.layout.dp, problem.model.num_layers, values);
                const int64_t expert_ranks = ExpertRanks(bound.layout);
                std::erase_if(values, [&](int64_t pp) { return expert_ranks % pp != 0; });
              },
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { TakeRanks(value, run.layout.pp, run.layout); },
          .settles = {"global-batch-divisible"}};
}

SpaceRow ScheduleRow() {
  return {.name = "schedule",
          .applies = [](const Problem&, const RunConfig& bound) { return bound.layout.pp > 1; },
          .values =
              [](const Problem&, const RunConfig&, Values& values) {
                for (const Schedule each : kSchedules) values.push_back(static_cast<int64_t>(each));
              },
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { run.layout.schedule = static_cast<Schedule>(value); },
          .settles = {"micro-batches-divisible-by-pp"}};
}

/// Chunks of equal size: more of them than two layers' worth of imbalance is never better.
SpaceRow VirtualPipelineRow() {
  return {.name = "vp",
          .applies =
              [](const Problem&, const RunConfig& bound) {
                return bound.layout.schedule == Schedule::kInterleaved1F1B;
              },
          .values =
              [](const Problem& problem, const RunConfig& bound, Values& values) {
                const int64_t layers = problem.model.num_layers;
                for (int64_t vp = 2; vp * bound.layout.pp <= layers; ++vp) {
                  if (layers % (vp * bound.layout.pp) == 0) values.push_back(vp);
                }
              },
          .bind = [](const Problem&, int64_t value, RunConfig& run) { run.layout.vp = value; },
          .settles = {},
          .alone = true};
}

SpaceRow ExpertParallelRow() {
  return {
      .name = "ep",
      .applies = [](const Problem& problem, const RunConfig&) { return problem.model.moe.used(); },
      .values =
          [](const Problem& problem, const RunConfig& bound, Values& values) {
            const int64_t experts = problem.model.moe.num_experts;
            AppendDivisors(std::gcd(experts, ExpertRanks(bound.layout)), experts, values);
          },
      .bind = [](const Problem&, int64_t value, RunConfig& run) { run.layout.ep = value; },
      .settles = {}};
}

/// Experts are small: they are never split over more ranks than the rest of a layer.
SpaceRow ExpertTensorParallelRow() {
  return {.name = "etp",
          .applies =
              [](const Problem& problem, const RunConfig& bound) {
                return problem.model.moe.used() && bound.layout.tp > 1;
              },
          .values =
              [](const Problem& problem, const RunConfig& bound, Values& values) {
                const int64_t most = std::gcd(bound.layout.tp, problem.model.moe.ffn_hidden_size);
                AppendDivisors(std::gcd(most, ExpertRanks(bound.layout)), most, values);
              },
          .bind = [](const Problem&, int64_t value, RunConfig& run) { run.layout.etp = value; },
          .settles = {}};
}

SpaceRow DispatchRow() {
  return {.name = "dispatch",
          .applies = [](const Problem&,
                        const RunConfig& bound) { return bound.layout.ep * bound.layout.etp > 1; },
          .values =
              [](const Problem&, const RunConfig&, Values& values) {
                for (const Dispatch each : {Dispatch::kAllToAll, Dispatch::kAllGather}) {
                  values.push_back(static_cast<int64_t>(each));
                }
              },
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { run.layout.dispatch = static_cast<Dispatch>(value); },
          .settles = {},
          .alone = true};
}

SpaceRow MicroBatchRow() {
  return {
      .name = "mbs",
      .applies = Always,
      .values =
          [](const Problem& problem, const RunConfig&, Values& values) {
            AppendDivisors(problem.global_batch, problem.max_micro_batch, values);
          },
      .bind = [](const Problem&, int64_t value, RunConfig& run) { run.layout.micro_batch = value; },
      .settles = {"fp8-sizes-divisible-by-16", "tokens-divisible-by-tp-with-sp"},
      .alone = true};
}

/// Whether messages get on beside ops: those of a cpu are done when they are submitted.
bool Overlaps(const Problem& problem) { return problem.cluster.device != "cpu"; }

SpaceRow TpOverlapRow() {
  return {.name = "tp_overlap_chunks",
          .applies =
              [](const Problem& problem, const RunConfig& bound) {
                return Overlaps(problem) && bound.layout.tp > 1 && !TypesOf(bound.layout).fp8;
              },
          .values = Fixed<1, 2, 4>,
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { run.layout.tp_overlap_chunks = value; },
          .settles = {"rows-divisible-by-tp-overlap-chunks"},
          .alone = true};
}

SpaceRow RecomputeRow() {
  return {.name = "recompute",
          .applies = Always,
          .values =
              [](const Problem&, const RunConfig&, Values& values) {
                for (size_t i = 0; i < RecomputePlans().size(); ++i) {
                  values.push_back(static_cast<int64_t>(i));
                }
              },
          .bind =
              [](const Problem&, int64_t value, RunConfig& run) {
                run.layout.recompute = RecomputePlans()[static_cast<size_t>(value)];
              },
          .settles = {},
          .alone = true};
}

SpaceRow ZeroRow() {
  return {.name = "zero",
          .applies = Always,
          .values = Fixed<0, 1, 2, 3>,
          .bind = [](const Problem&, int64_t value, RunConfig& run) { run.layout.zero = value; },
          .settles = {"zero-requires-dp"}};
}

/// Replicas that are sharded over all data-parallel ranks or, where these span nodes, over those of
/// a node: within it links are alike, so that smaller replicas would only take more memory.
SpaceRow ShardRow() {
  return {.name = "shard",
          .applies =
              [](const Problem& problem, const RunConfig& bound) {
                const ParallelConfig& layout = bound.layout;
                return layout.zero >= 1 &&
                       layout.tp * layout.cp * layout.dp > problem.cluster.ranks_per_node;
              },
          .values =
              [](const Problem& problem, const RunConfig& bound, Values& values) {
                const ParallelConfig& layout = bound.layout;
                AppendDivisors(layout.dp * layout.cp, problem.cluster.ranks_per_node / layout.tp,
                               values);
                const int64_t in_node = values.empty() ? 1 : values.back();
                values = {0};
                if (in_node > 1) values.push_back(in_node);
              },
          .bind = [](const Problem&, int64_t value, RunConfig& run) { run.layout.shard = value; },
          .settles = {},
          .alone = true};
}

SpaceRow ReshardRow() {
  return {.name = "reshard_after_forward",
          .applies = [](const Problem&, const RunConfig& bound) { return bound.layout.zero == 3; },
          .values = Fixed<1, 0>,
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { run.layout.reshard_after_forward = value != 0; },
          .settles = {},
          .alone = true};
}

SpaceRow ParamGatherRow() {
  return {.name = "overlap_param_gather",
          .applies =
              [](const Problem& problem, const RunConfig& bound) {
                return Overlaps(problem) && (bound.layout.zero == 1 || bound.layout.zero == 2);
              },
          .values = Fixed<0, 1>,
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { run.layout.overlap_param_gather = value != 0; },
          .settles = {},
          .alone = true};
}

}  // namespace

const std::vector<SpaceRow>& SpaceRows() {
  static const std::vector<SpaceRow> rows = {PrecisionRow(),
                                             OptimizerStateRow(),
                                             RanksRow(),
                                             TensorParallelRow(),
                                             SequenceParallelRow(),
                                             ContextParallelRow(),
                                             ContextMessagesRow(),
                                             ExpertParallelRow(),
                                             ExpertTensorParallelRow(),
                                             DispatchRow(),
                                             MicroBatchRow(),
                                             TpOverlapRow(),
                                             RecomputeRow(),
                                             PipelineParallelRow(),
                                             ScheduleRow(),
                                             VirtualPipelineRow(),
                                             ZeroRow(),
                                             ShardRow(),
                                             ReshardRow(),
                                             ParamGatherRow()};
  return rows;
}

}  // namespace trimtab
