// Recordings: what the pieces of a training step do on one rank, as the engine's own classes report
// it on a meta device: ops, messages, memory. Everything that is predicted is made of these; no
// other file of this floor knows what a layer, an optimizer or a reduction does.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "engine/config/run_config.h"
#include "engine/device/device.h"
#include "engine/device/memory.h"
#include "engine/device/record.h"

namespace trimtab {

/// Bytes in use relative to where something began: at its end, and at most on the way.
struct MemorySpan {
  int64_t change = 0;
  int64_t peak = 0;

  /// This, and then `next`.
  MemorySpan Then(const MemorySpan& next) const;
  /// This so many times (>= 1), one after the other.
  MemorySpan Times(int64_t times) const;
  bool operator==(const MemorySpan&) const = default;
};

/// What a piece did, in order.
using RecordedEvent = std::variant<OpRecord, CommRecord>;

/// One piece of the engine, once.
struct Recording {
  PieceRecord piece;
  std::vector<RecordedEvent> events;
  MemorySpan total;        // of everything
  MemorySpan activations;  // of what is allocated as an activation
};

/// The pieces of a micro batch, in the order they ran.
struct MicroBatchRecording {
  int64_t layers = 1;  // of the model that was recorded: all alike
  std::vector<Recording> forward;
  std::vector<Recording> backward_overwriting;  // of the first micro batch: it sets the gradients
  std::vector<Recording> backward_adding;       // of the others: they add to them
  int64_t input_bytes = 0;                      // activations in use before it: tokens and targets
};

/// Layers that stand for all those that are alike: one, or the first, a middle and the last one
/// where a piece also does work for its neighbours (sharded gradients and weights).
int64_t RecordedLayers(const RunConfig& run);

/// Records embedding, head, and between them RecordedLayers layers like number `layer` of the run's
/// model, on rank 0.
MicroBatchRecording RecordMicroBatch(const RunConfig& run, int64_t layer, const Executor& executor);

/// The end of a step, and what a rank holds between steps.
struct UpdateRecording {
  Recording update;   // reduction of all gradients, clipping, AdamW, gathering
  BytesByTag held{};  // but for the inputs of a micro batch
};

/// Records the end of a step of rank 0, with all its parameters. Throws InputError where `run.fp8`
/// names a layer that is not there.
UpdateRecording RecordUpdate(const RunConfig& run, const Executor& executor);

/// For each layer of the run's model, the first one that is like it: recorded alike, but for its
/// number and for recomputation.
std::vector<int64_t> FirstAlike(const RunConfig& run);

}  // namespace trimtab
