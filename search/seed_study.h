// Seed study: what an earlier search learned of a machine, for another problem on it.
#pragma once

#include <string>
#include <vector>

#include "search/space/space.h"
#include "search/study/residual.h"

namespace trimtab {

struct SeedStudy {
  std::string path;
  HardwareProfile profile;            // the prices its predictions were made with
  std::vector<Residual> residuals{};  // how far off they were
  Cluster cluster;                    // of its problem

  /// Throws InputError where the study is of another machine than `cluster`.
  void RequireSameMachine(const Cluster& cluster) const;
};

/// Reads the study at `path`, of a search for `workload`. Throws InputError (no such file, a search
/// for another workload), StorageError (damaged).
SeedStudy LoadSeedStudy(const std::string& path, const std::string& workload = "training");

}  // namespace trimtab
