// A trainer's state to and from a checkpoint.
#pragma once

#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/train/trainer.h"

namespace trimtab {

/// Every parameter of the trainer's rank, for CheckpointWriter.
std::vector<const ParameterSpec*> CheckpointParameters(Trainer& trainer);

/// Writes what this rank alone holds, or holds as the first of its replicas: together the ranks
/// write every element once. Throws StorageError.
void SaveState(Trainer& trainer, CheckpointWriter& writer);

/// Fills weights and moments of this rank, whatever layout wrote the checkpoint.
/// Throws InputError when the checkpoint is of another model.
void LoadState(Trainer& trainer, const CheckpointReader& reader);

}  // namespace trimtab
