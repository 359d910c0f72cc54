// Recordings: what the pieces of a training step do on one rank, as the engine's own classes report
// it on a meta device: ops, messages, memory. Everything that is predicted is made of these; no
// other file of this floor knows what a layer, an optimizer or a reduction does.
#pragma once

#include <array>
#include <cstdint>
#include <variant>
#include <vector>

#include "engine/config/run/run_config.h"
#include "engine/device/device.h"
#include "engine/device/memory.h"
#include "engine/device/record.h"
#include "engine/model/gpt_model.h"
#include "engine/schedule/action.h"

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

/// An asynchronous message was waited for.
struct WaitRecord {
  CommRecord message;
};

/// The `events` that follow happen `times` times in a row, and take as long each time.
struct RepeatRecord {
  int64_t times = 1;
  size_t events = 0;
};

/// What a piece did, in order.
using RecordedEvent = std::variant<OpRecord, CommRecord, WaitRecord, RepeatRecord>;

/// One piece of the engine, once.
struct Recording {
  PieceRecord piece;
  std::vector<RecordedEvent> events;
  MemorySpan total;        // of everything
  MemorySpan activations;  // of what is allocated as an activation
};

/// The ways through a chunk of the model. A step's first forward pass may gather weights that the
/// later ones find; the first backward pass sets the gradients, the others add to them; the last
/// four are its parts, under zero-bubble schedules.
enum Way : size_t {
  kForwardFirst,
  kForwardLater,
  kBackwardSetting,
  kBackwardAdding,
  kInputSetting,
  kInputAdding,
  kWeightSetting,
  kWeightAdding,
  kWayCount
};
/// Whether a step goes this way once, with its first micro batch.
constexpr bool IsFirst(size_t way) { return way % 2 == 0; }

/// The pieces of a micro batch of a chunk, in the order they ran each way.
struct MicroBatchRecording {
  std::array<std::vector<Recording>, kWayCount> ways;
};

/// Layers of a chunk, counted from its first, that are recorded together, their plan, and which
/// ends of the chunk are recorded with them. `amid`: they are three groups, of which the first and
/// the last only show what the second does beside them.
struct RecordedLayers {
  int64_t first = 0;
  int64_t count = 0;
  RecomputeConfig recompute;
  bool embedding = false;
  bool head = false;
  bool amid = false;

  /// Whether `other` shows the same, wherever its layers are, if all are alike.
  bool ShowsAlike(const RecordedLayers& other) const {
    return count == other.count && recompute == other.recompute && embedding == other.embedding &&
           head == other.head;
  }
};
/// Whether a piece moves sharded gradients or weights for the next one too, so that what it does
/// shows beside its neighbours only.
bool MovesForNext(const ParallelConfig& layout);
/// Whether later micro batches than the first are recorded for a step of so many: it has some, or
/// its stages are compared by them. Of pieces that move no shards they always are, since steps of
/// any length share what is recorded.
bool HasLaterPasses(const ParallelConfig& layout, int64_t micro_batches);
/// Those that show what `group` of the chunk does: it alone where pieces work for themselves, else
/// with its neighbours, of which the ends of the chunk may be one.
RecordedLayers LayersToRecord(const RunConfig& run, const ModelChunk& chunk,
                              const RecomputeGroup& group);
/// What shows the ends of a chunk whose pieces work for themselves: of what the run's plan
/// recomputes, they have the logits.
RecordedLayers EndsToRecord(const RunConfig& run, const ModelChunk& chunk);

/// Records a chunk of the run's model, on rank 0, whose recompute plan holds for it. Backward
/// passes are recorded whole, or in parts where the run's schedule takes them so. Not `later`: of
/// the first micro batch of a step alone; nothing happens on the ways of later ones.
MicroBatchRecording RecordMicroBatch(const RunConfig& run, const ModelChunk& chunk,
                                     const Executor& executor, bool later = true);

/// What travels between neighbouring chunks of the model, as it is received.
struct MessageRecording {
  CommRecord activation;
  CommRecord gradient;
};
/// Only with a pipeline.
MessageRecording RecordMessages(const RunConfig& run, const Executor& executor);

/// Memory for the ids of the chunk's micro batches, `in_flight` at once. Bytes, of activations.
int64_t RecordIds(const RunConfig& run, const ModelChunk& chunk, int64_t in_flight,
                  const Executor& executor);

/// The end of a step, and what a rank holds between steps.
struct UpdateRecording {
  Recording reduction;  // of all gradients, as if none had been sent beside the backward pass
  Recording update;     // clipping, AdamW, gathering
  BytesByTag held{};    // but for the ids of micro batches
};

/// Records the end of a step of the first rank of pipeline stage `stage`, whose program is
/// `program`, with all its parameters. Throws InputError where `run.fp8` names a layer that is not
/// there.
UpdateRecording RecordUpdate(const RunConfig& run, int64_t stage, StageProgram program,
                             const Executor& executor);
/// What it holds between steps, alone.
BytesByTag RecordHeld(const RunConfig& run, int64_t stage, StageProgram program,
                      const Executor& executor);

/// For each layer of the run's model, the first one that is like it: recorded alike, but for its
/// number and for recomputation.
std::vector<int64_t> FirstAlike(const RunConfig& run);
/// The first layer from which on the model is like the layers of `chunk`, but for recomputation;
/// `first_alike` as FirstAlike says.
int64_t FirstLayersAlike(const std::vector<int64_t>& first_alike, const ModelChunk& chunk);

}  // namespace trimtab
