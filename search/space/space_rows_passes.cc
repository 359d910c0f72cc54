#include <algorithm>
#include <array>
#include <numeric>

#include "engine/base/units.h"
#include "search/space/recompute_plans.h"
#include "search/space/space_row_parts.h"

namespace trimtab {
namespace {

constexpr std::array<Schedule, 4> kSchedules = {Schedule::k1F1B, Schedule::kInterleaved1F1B,
                                                Schedule::kZeroBubble, Schedule::kGpipe};

/// Layers of a chunk, at most.
int64_t LayersOfChunk(const Problem& problem, const RunConfig& bound) {
  return CeilDiv(problem.model.num_layers, bound.layout.pp * bound.layout.vp);
}

}  // namespace

SpaceRow MicroBatchRow() {
  return {
      .name = "mbs",
      .applies = Always,
      .values =
          [](const Problem& problem, const RunConfig& bound, Values& values) {
            AppendDivisors(bound.global_batch, problem.max_micro_batch, values);
          },
      .bind = [](const Problem&, int64_t value, RunConfig& run) { run.layout.micro_batch = value; },
      .settles = {"fp8-sizes-divisible-by-16", "tokens-divisible-by-tp-with-sp",
                  "rows-divisible-by-tp-overlap-chunks"},
      .alike = Alike<&ParallelConfig::micro_batch>,
      .readers = Readers::kNone,
      .completes = LayoutPart::kShape};
}

/// Of which family the plan is. Which one of it is bound last: RecomputePlanRow.
SpaceRow RecomputeRow() {
  return {.name = "recompute",
          .applies = Always,
          .values =
              [](const Problem&, const RunConfig&, Values& values) {
                for (size_t i = 0; i < PlanFamilies().size(); ++i) {
                  values.push_back(static_cast<int64_t>(i));
                }
              },
          .bind =
              [](const Problem&, int64_t value, RunConfig& run) {
                run.layout.recompute = PlanFamilies()[static_cast<size_t>(value)];
              },
          .settles = {},
          .alike =
              [](const RunConfig& a, const RunConfig& b) {
                return OfOneFamily(a.layout.recompute[0], b.layout.recompute[0]);
              },
          .readers = Readers::kLast,
          .completes = LayoutPart::kPlans};
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
          .settles = {"global-batch-divisible", "micro-batches-at-most"},
          .alike = Alike<&ParallelConfig::pp>};
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
          .settles = {"micro-batches-divisible-by-pp"},
          .alike = Alike<&ParallelConfig::schedule>,
          .last_reader = "vp"};
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
          .alike = Alike<&ParallelConfig::vp>,
          .readers = Readers::kLast,
          .completes = LayoutPart::kPipeline};
}

/// Which plan of its family it is. Bound last: the one that recomputes least and fits is the best,
/// and which one that is depends on all else.
SpaceRow RecomputePlanRow() {
  return {.name = "recompute",
          .applies =
              [](const Problem&, const RunConfig& bound) {
                return bound.layout.recompute[0].kind != RecomputeKind::kNone;
              },
          .values =
              [](const Problem& problem, const RunConfig& bound, Values& values) {
                values.resize(static_cast<size_t>(
                    PlansOfFamily(bound.layout.recompute[0], LayersOfChunk(problem, bound))));
                std::iota(values.begin(), values.end(), int64_t{0});
              },
          .bind =
              [](const Problem& problem, int64_t value, RunConfig& run) {
                run.layout.recompute =
                    PlanOfFamily(run.layout.recompute[0], LayersOfChunk(problem, run), value);
              },
          .settles = {},
          .alike = nullptr,
          .readers = Readers::kNone};
}

}  // namespace trimtab
