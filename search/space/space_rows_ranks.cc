#include <algorithm>

#include "search/space/space_row_parts.h"

namespace trimtab {

/// How many ranks a run has: on cpu that is itself a choice, on GPUs where it is asked for.
SpaceRow RanksRow() {
  return {
      .name = "ranks",
      .applies = Always,
      .values =
          [](const Problem& problem, const RunConfig&, Values& values) {
            const Cluster& cluster = problem.cluster;
            if (cluster.device != DeviceKind::kCpu) {
              values = AllowedGpus(problem);
              return;
            }
            const int64_t most = problem.max_ranks > 0 ? problem.max_ranks : cluster.max_ranks;
            for (int64_t ranks = 1; ranks <= most; ranks *= 2) values.push_back(ranks);
          },
      .bind =
          [](const Problem& problem, int64_t value, RunConfig& run) {
            run.layout.dp = value;
            run.threads_per_rank = problem.cluster.device == DeviceKind::kCpu
                                       ? std::max<int64_t>(1, problem.cluster.cores / value)
                                       : 1;
            run.memory_per_rank_bytes = MemoryLimitBytes(problem, run);
          },
      .settles = {},
      .alike = [](const RunConfig& a,
                  const RunConfig& b) { return a.layout.world_size() == b.layout.world_size(); }};
}

/// Where there are several to choose among.
SpaceRow GlobalBatchRow() {
  return {.name = "gbs",
          .applies = [](const Problem& problem,
                        const RunConfig&) { return !problem.global_batches.empty(); },
          .values = [](const Problem& problem, const RunConfig&,
                       Values& values) { values = problem.global_batches; },
          .bind = [](const Problem&, int64_t value, RunConfig& run) { run.global_batch = value; },
          .settles = {},
          .alike = [](const RunConfig& a,
                      const RunConfig& b) { return a.global_batch == b.global_batch; },
          .last_reader = "mbs",
          .completes = LayoutPart::kNumerics};
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
                  "shared-experts-divisible-by-tp"},
      .alike = Alike<&ParallelConfig::tp>};
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
          .alike = Alike<&ParallelConfig::sequence_parallel>,
          .readers = Readers::kNone};
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
          .settles = {"sequence-divisible-by-2cp"},
          .alike = Alike<&ParallelConfig::cp>};
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
          .alike = Alike<&ParallelConfig::cp_comm_type>,
          .readers = Readers::kNone};
}

SpaceRow TpOverlapRow() {
  return {.name = "tp_overlap_chunks",
          .applies =
              [](const Problem& problem, const RunConfig& bound) {
                return Overlaps(problem) && bound.layout.tp > 1 &&
                       !TypesOf(bound.layout.numerics).fp8;
              },
          .values = Fixed<1, 2, 4>,
          .bind = [](const Problem&, int64_t value,
                     RunConfig& run) { run.layout.tp_overlap_chunks = value; },
          .settles = {},
          .alike = Alike<&ParallelConfig::tp_overlap_chunks>,
          .readers = Readers::kNone,
          .completes = LayoutPart::kParts};
}

}  // namespace trimtab
