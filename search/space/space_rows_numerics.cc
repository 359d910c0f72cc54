#include <algorithm>

#include "cost_model/hardware/numerics.h"
#include "search/space/space_row_parts.h"

namespace trimtab {
std::vector<Numerics> OptimizerStates(const Problem& problem, Precision precision) {
  std::vector<Numerics> states;
  const auto append = [&](const std::string& name) {
    Numerics numerics = {.precision = precision};
    SetOptimizerState(name, numerics);
    if (std::ranges::find(states, numerics) == states.end()) states.push_back(numerics);
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
  return {
      .name = "precision",
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
                 RunConfig& run) { run.layout.numerics.precision = static_cast<Precision>(value); },
      // The model's own rules are settled before anything is bound.
      .settles = {"model-sizes-positive", "run-sizes-positive", "tf32-requires-cuda",
                  "hidden-divisible-by-heads", "heads-divisible-by-kv-heads",
                  "head-size-even-with-rope", "sequence-within-positions",
                  "rope-scaling-original-length"},
      .alike =
          [](const RunConfig& a, const RunConfig& b) {
            return a.layout.numerics.precision == b.layout.numerics.precision;
          },
      .last_reader = "tp_overlap_chunks"};
}

SpaceRow OptimizerStateRow() {
  return {.name = "optimizer state",
          .applies = Always,
          .values =
              [](const Problem& problem, const RunConfig& bound, Values& values) {
                const size_t count =
                    OptimizerStates(problem, bound.layout.numerics.precision).size();
                for (size_t i = 0; i < count; ++i) values.push_back(static_cast<int64_t>(i));
              },
          .bind =
              [](const Problem& problem, int64_t value, RunConfig& run) {
                Numerics& numerics = run.layout.numerics;
                numerics = OptimizerStates(problem, numerics.precision)[static_cast<size_t>(value)];
              },
          .settles = {"remainder-requires-bf16-weights", "bf16-gradients-require-bf16-weights"},
          .alike =
              [](const RunConfig& a, const RunConfig& b) {
                Numerics state = b.layout.numerics;
                state.precision = a.layout.numerics.precision;
                return state == a.layout.numerics;
              },
          .readers = Readers::kNone};
}

}  // namespace trimtab
