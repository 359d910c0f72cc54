#include <algorithm>

#include "cost_model/hardware/numerics.h"
#include "search/space/space_row_parts.h"

namespace trimtab {
namespace {

// A state as a value: a byte for each of its types.
constexpr int64_t kByte = 256;

int64_t ValueOfState(const Numerics& state) {
  return static_cast<int64_t>(state.master) +
         kByte *
             (static_cast<int64_t>(state.moments) + kByte * static_cast<int64_t>(state.gradients));
}

}  // namespace

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
  return {
      .name = "optimizer state",
      .applies = Always,
      .values =
          [](const Problem& problem, const RunConfig& bound, Values& values) {
            for (const Numerics& each : OptimizerStates(problem, bound.layout.numerics.precision)) {
              values.push_back(ValueOfState(each));
            }
          },
      .bind =
          [](const Problem&, int64_t value, RunConfig& run) {
            Numerics& numerics = run.layout.numerics;
            numerics.master = static_cast<MasterWeights>(value % kByte);
            numerics.moments = static_cast<DType>(value / kByte % kByte);
            numerics.gradients = static_cast<DType>(value / kByte / kByte);
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
