#include <algorithm>

#include "cost_model/hardware/numerics.h"
#include "search/space/space_row_parts.h"

namespace trimtab {
namespace {

// A state as a value: a byte for each of its types.
constexpr int64_t kByte = 256;

int64_t ValueOfState(const ParallelConfig& layout) {
  return static_cast<int64_t>(layout.master) +
         kByte * (static_cast<int64_t>(layout.moments) +
                  kByte * static_cast<int64_t>(layout.gradients));
}

}  // namespace

std::vector<ParallelConfig> OptimizerStates(const Problem& problem, Precision precision) {
  std::vector<ParallelConfig> states;
  const auto append = [&](const std::string& name) {
    ParallelConfig layout;
    layout.precision = precision;
    SetOptimizerState(name, layout);
    if (std::find(states.begin(), states.end(), layout) == states.end()) states.push_back(layout);
  };
  for (const std::string& name : problem.optimizer_states) {
    if (name != "auto") {
      append(name);
      continue;
    }
    for (const std::string& each : EveryOptimizerState(precision)) append(each);
  }
  return states;
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
                      "rope-scaling-original-length"},
          .alike = Alike<&ParallelConfig::precision>,
          .last_reader = "tp_overlap_chunks"};
}

SpaceRow OptimizerStateRow() {
  return {
      .name = "optimizer state",
      .applies = Always,
      .values =
          [](const Problem& problem, const RunConfig& bound, Values& values) {
            for (const ParallelConfig& each : OptimizerStates(problem, bound.layout.precision)) {
              values.push_back(ValueOfState(each));
            }
          },
      .bind =
          [](const Problem&, int64_t value, RunConfig& run) {
            run.layout.master = static_cast<MasterWeights>(value % kByte);
            run.layout.moments = static_cast<DType>(value / kByte % kByte);
            run.layout.gradients = static_cast<DType>(value / kByte / kByte);
          },
      .settles = {"remainder-requires-bf16-weights", "bf16-gradients-require-bf16-weights"},
      .alike = Alike<&ParallelConfig::master, &ParallelConfig::moments, &ParallelConfig::gradients>,
      .readers = Readers::kNone};
}

}  // namespace trimtab
