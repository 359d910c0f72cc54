#include "profiler/launch/kinds.h"

#include "profiler/launch/slurm_plan.h"

namespace trimtab {

const std::vector<LauncherKind>& LauncherKinds() {
  static const std::vector<LauncherKind> kKinds = {
      {"inproc", {}, MakeInprocLauncher},
      {"local", {}, MakeMpirunLauncher},
      {"mpirun", MpirunOptions(), MakeMpirunLauncher},
      {"slurm", SlurmOptions(), MakeSlurmLauncher},
      {"kubernetes", KubernetesOptions(), MakeKubernetesLauncher},
  };
  return kKinds;
}

}  // namespace trimtab
