#include "search/space/objective.h"

#include "engine/base/error.h"
#include "engine/base/name_table.h"
#include "engine/base/nearest_name.h"

namespace trimtab {
namespace {

constexpr std::array<Named<Objective>, kObjectives.size()> kObjectiveNames = {{
    {Objective::kThroughput, "throughput"},
    {Objective::kMemory, "memory"},
    {Objective::kCost, "cost"},
    {Objective::kLatency, "latency"},
    {Objective::kGpus, "gpus"},
}};

}  // namespace

std::string Name(Objective objective) { return std::string(NameIn(kObjectiveNames, objective)); }

Objective ParseObjective(const std::string& text) {
  if (const auto objective = FindNamed(kObjectiveNames, text)) return *objective;
  throw UsageError(
      fmt::format("unknown objective \"{}\"{}", text, SuggestName(text, NamesIn(kObjectiveNames))));
}

bool IsExact(Objective objective) {
  return objective == Objective::kMemory || objective == Objective::kGpus;
}

double Score(Objective objective, const RunConfig& run, double tokens_per_s,
             int64_t peak_mem_bytes) {
  switch (objective) {
    case Objective::kThroughput:
    case Objective::kLatency:
      return 1 / tokens_per_s;
    case Objective::kMemory:
      return static_cast<double>(peak_mem_bytes);
    case Objective::kGpus:
      return static_cast<double>(run.layout.world_size());
    case Objective::kCost: {
      const int64_t paid = run.device == DeviceKind::kCpu ? 1 : run.layout.world_size();
      return static_cast<double>(paid) / tokens_per_s;
    }
  }
  TRIMTAB_ASSERT(false, "objective {}", static_cast<int>(objective));
}

SortKey PredictionKey(Objective objective, const RunConfig& run, const Prediction& prediction) {
  return {Score(objective, run, prediction.tokens_per_s, prediction.peak_mem_bytes),
          prediction.step_time_s};
}

}  // namespace trimtab
