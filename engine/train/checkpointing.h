// A trainer's state to and from a checkpoint: each rank moves its own part.
#pragma once

#include "engine/checkpoint/checkpoint.h"
#include "engine/runtime/weights/weight_source.h"
#include "engine/runtime/whole_model.h"
#include "engine/train/trainer.h"

namespace trimtab {

/// What the checkpoint says of the run after `step` steps, but for its tokens and their tokenizer:
/// the same on every rank. Every rank calls it.
CheckpointHeader HeaderOf(Trainer& trainer, int64_t step);

/// Writes this rank's part of weights and optimizer state. Every rank of the run calls it, with the
/// one writer they share; together they write every element exactly once. Throws StorageError.
void WriteState(Trainer& trainer, CheckpointWriter& writer);

/// Fills this rank's weights and optimizer state, whatever layout wrote the checkpoint.
/// Throws InputError when the checkpoint is of another model, StorageError when it is unreadable.
void ReadState(Trainer& trainer, const CheckpointReader& reader);

/// Fills this rank's weights; the rest of its state stays as in the first step of a run.
void ReadWeights(Trainer& trainer, const WeightSource& source);

/// The model of the trainer's run, of which it may hold a few chunks only.
WholeModelDeclaration DeclareWholeModel(Trainer& trainer);

/// Returns what a checkpoint of the run has of `parameters`, which must outlive it.
std::vector<StoredParameter> StoredParameters(const RunConfig& run,
                                              const ParameterStore& parameters);

}  // namespace trimtab
