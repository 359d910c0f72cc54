// Small runs of models with experts, one for each thing that routing can do.
#pragma once

#include <string>
#include <vector>

#include "engine/config/run/run_config.h"

namespace trimtab {

struct MoeRun {
  std::string name;
  RunConfig run;
};

/// As SmallRun, with experts: routers of every kind, drops, shared experts, dense layers among
/// them.
std::vector<MoeRun> SmallMoeRuns();
/// Layouts of every kind that all of them can take.
std::vector<std::string> SmallMoeLayouts();
/// One of them, by its name.
RunConfig SmallMoeRun(const std::string& name);
/// The same for fp8, which takes multiples of 16: tp, etp and cp of 2. Tokens go to experts in
/// turn, so that no choice hangs on a rounding.
RunConfig SmallMoeRunInFp8(const std::string& name);

}  // namespace trimtab
