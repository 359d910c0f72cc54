#include <numeric>

#include "search/space/space_row_parts.h"

namespace trimtab {

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
      .settles = {},
      .alike = Alike<&ParallelConfig::ep>,
      .last_reader = "pp"};
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
          .settles = {},
          .alike = Alike<&ParallelConfig::etp>,
          .last_reader = "pp"};
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
          .alike = Alike<&ParallelConfig::dispatch>,
          .readers = Readers::kNone};
}

}  // namespace trimtab
