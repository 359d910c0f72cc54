// The groups of a rank that is a process.
#pragma once

#include "engine/comm/mpi/mpi_world.h"
#include "engine/comm/parallel_context.h"

namespace trimtab {

/// Throws UsageError when mpirun did not start as many processes as the layout has ranks.
void CheckMpiWorldSize(int processes, const ParallelConfig& layout);

/// The context of this process's rank: MPI for the messages of a cpu device, NCCL for those of a
/// cuda device. Every process of the world calls it together; both arguments must outlive it.
/// Throws as CheckMpiWorldSize; EnvironmentError when NCCL is missing.
ParallelContext MakeMpiContext(MpiWorld& world, const ParallelConfig& layout, Device& device);

}  // namespace trimtab
