#include "search/seed_study.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "search/race/correct.h"
#include "search/search_result.h"
#include "search/serving/serving_workload.h"
#include "search/study/study.h"

namespace trimtab {

void SeedStudy::RequireSameMachine(const Cluster& here) const {
  const nlohmann::json mine = ToJson(here);
  const nlohmann::json its = ToJson(cluster);
  for (const char* key :
       {"device", "name", "nodes", "ranks_per_node", "max_ranks", "cores", "memory_bytes"}) {
    if (its.at(key) == mine.at(key)) continue;
    throw InputError(
        fmt::format("{}: a study of another machine: cluster.{} is {} there and {} here", path, key,
                    its.at(key).dump(), mine.at(key).dump()));
  }
  if (here.device == DeviceKind::kCpu && !profile.measured_on.empty() &&
      !profile.measured_on.starts_with(DescribeThisMachine())) {
    throw InputError(fmt::format("{}: a study of another machine: \"{}\"; this one is \"{}\"", path,
                                 profile.measured_on, DescribeThisMachine()));
  }
}

SeedStudy LoadSeedStudy(const std::string& path, const std::string& workload) {
  const std::unique_ptr<Study> study = Study::OpenExisting(path);
  if (study->workload() != workload) {
    throw InputError(fmt::format("{}: a study of a search for {}, not for {}", path,
                                 study->workload(), workload));
  }
  SeedStudy seed;
  seed.path = path;
  seed.profile = HardwareProfileFromJson(study->profile(), path);
  std::vector<CandidateRecord> candidates = study->Candidates();
  if (workload == "serving") {
    const ServingWorkload service(*study);
    seed.cluster = service.cluster();
    service.Judge(service.problem().objective, candidates);
  } else {
    seed.cluster = ProblemFromJson(study->problem(), path + ": problem: $").cluster;
  }
  const Race race = JudgeRace({}, candidates, ReferencesOf(*study));
  ApplyRace(race, study->seed(), candidates);
  seed.residuals = ResidualsOf(candidates);
  return seed;
}

}  // namespace trimtab
