// The groups of a rank that is a process.
#pragma once

#include "engine/comm/mpi/mpi_world.h"
#include "engine/comm/parallel_context.h"

namespace trimtab {

/// Throws UsageError when `launcher` did not start as many processes as the layout has ranks.
void CheckMpiWorldSize(int processes, const ParallelConfig& layout,
                       const char* launcher = "mpirun");

/// The context of this process's rank: MPI for the messages of a cpu device, NCCL for those of a
/// cuda device, where groups of experts' ranks are made only if the model has experts: each takes
/// memory. The ranks of the layout are neighbours in a world of them, or of several times as many:
/// those of others are in none of its groups. `kv_copies` as MakeContext's. Every process of the
/// world calls it together; `world` and `device` must outlive it. Throws EnvironmentError when NCCL
/// is missing.
ParallelContext MakeMpiContext(MpiWorld& world, const ParallelConfig& layout, Device& device,
                               bool has_experts, int64_t kv_copies = 1);

}  // namespace trimtab
