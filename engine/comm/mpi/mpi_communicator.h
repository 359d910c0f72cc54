// The communicator of ranks that are processes, over tensors in host memory.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/mpi/mpi_world.h"

namespace trimtab {

/// `members`: the world ranks of the group's ranks, of which this process is one. Results are the
/// same bits as those of in-process ranks. `world` must outlive the communicator. Abort fails the
/// whole world: a group of it cannot fail alone.
std::unique_ptr<Communicator> MakeMpiCommunicator(MpiWorld& world, GroupKind group,
                                                  std::vector<int> members);

}  // namespace trimtab
