// Which launcher started this process, and as which of how many: read from the environment, without
// MPI.
#pragma once

#include <optional>

namespace trimtab {

struct MpiLaunch {
  const char* launcher = "mpirun";  // or "srun"
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the processes of this machine
  int local_size = 1;
};

/// What Open MPI's mpirun set for this process, or Slurm's srun --mpi=pmix for one of several;
/// nothing when it was started in another way.
/// Throws EnvironmentError when the variables are incomplete or contradict each other.
std::optional<MpiLaunch> FindMpiLaunch();

/// This process's rank; 0 when neither started it.
int LaunchedRank();

/// To be called before ranks run as threads of this process. Throws EnvironmentError when another
/// launcher (torchrun, srun without PMIx, an MPI that is not Open MPI) says that this is one of
/// several processes, each of which would run all ranks; or says so by half.
void RefuseOtherLaunchers();

}  // namespace trimtab
