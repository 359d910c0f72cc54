#include "cost_model/recordings/recording.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "engine/device/repeat.h"
#include "engine/model/gpt_model.h"
#include "engine/parallel/sharded_data_parallel.h"
#include "engine/runtime/context.h"
#include "engine/train/trainer.h"

namespace trimtab {
namespace {

/// Notes what happens on its device, piece by piece.
class PieceRecorder final : public RepeatRecorder {
 public:
  explicit PieceRecorder(Device& device) : device_(device) { device_.set_recorder(this); }
  ~PieceRecorder() override { device_.set_recorder(nullptr); }
  PieceRecorder(const PieceRecorder&) = delete;
  PieceRecorder& operator=(const PieceRecorder&) = delete;

  void EnterPiece(const PieceRecord& piece) override {
    if (open_ && pieces_.back().piece == piece) return;
    Close();
    pieces_.emplace_back().piece = piece;
    open_ = true;
    device_.memory().ResetPeaks();
    total_before_ = device_.memory().current_total();
    activations_before_ = Activations(device_.memory().current_by_tag());
  }
  void BeginOp(const OpRecord& op) override { events_.emplace_back(op); }
  void BeginComm(const CommRecord& message) override { events_.emplace_back(message); }
  void BeginWait(const CommRecord& message) override { events_.emplace_back(WaitRecord{message}); }
  void End() override {}
  void BeginRepeated(int64_t times) override {
    repeated_ = events_.size();
    events_.emplace_back(RepeatRecord{.times = times});
  }
  void EndRepeated() override {
    std::get<RepeatRecord>(events_.at(repeated_)).events = events_.size() - repeated_ - 1;
  }

  /// The pieces since the last call.
  std::vector<Recording> Take() {
    Close();
    return std::exchange(pieces_, {});
  }

 private:
  static int64_t Activations(const BytesByTag& bytes) {
    return bytes[static_cast<size_t>(MemoryTag::kActivations)];
  }

  void Close() {
    if (!open_) return;
    open_ = false;
    const MemoryTracker& memory = device_.memory();
    Recording& piece = pieces_.back();
    piece.events.assign(events_.begin(), events_.end());
    events_.clear();
    piece.total = {memory.current_total() - total_before_, memory.peak_total() - total_before_};
    piece.activations = {Activations(memory.current_by_tag()) - activations_before_,
                         Activations(memory.peak_by_tag()) - activations_before_};
  }

  Device& device_;
  std::vector<Recording> pieces_;
  std::vector<RecordedEvent> events_;  // of the open piece
  bool open_ = false;
  int64_t total_before_ = 0;
  int64_t activations_before_ = 0;
  size_t repeated_ = 0;  // the event that says how often those after it happen
};

/// What a recorded model of a run, which must outlive it, stands on.
struct Stage {
  Stage(const RunConfig& run, const Executor& executor)
      : device(MakeMetaDevice(executor.threads, executor.kind)),
        parallel(MakeMetaContext(run.layout, 0, run.model.kv_copies(run.layout.tp))),
        fp8(run.fp8),
        context(
            ContextOf(run, parallel, *device, TypesOf(run.layout.numerics).fp8 ? &fp8 : nullptr)),
        store(run.frozen) {}

  std::unique_ptr<Device> device;
  ParallelContext parallel;
  Fp8State fp8;
  LayerContext context;
  ParameterStore store;
};

/// The first rank of a pipeline stage, between steps.
struct StageTrainer {
  StageTrainer(const RunConfig& run, int64_t stage, StageProgram program, const Executor& executor)
      : device(MakeMetaDevice(executor.threads, executor.kind)),
        parallel(MakeMetaContext(run.layout, RankAt(run.layout, {.pp = static_cast<int>(stage)}),
                                 run.model.kv_copies(run.layout.tp))),
        trainer(run, parallel, *device, std::move(program)) {}

  /// But for the ids of micro batches.
  BytesByTag Held() const {
    BytesByTag held = device->memory().current_by_tag();
    held[static_cast<size_t>(MemoryTag::kActivations)] = 0;
    return held;
  }

  std::unique_ptr<Device> device;
  ParallelContext parallel;
  Trainer trainer;
};

}  // namespace

MemorySpan MemorySpan::Then(const MemorySpan& next) const {
  return {change + next.change, std::max(peak, change + next.peak)};
}

MemorySpan MemorySpan::Times(int64_t times) const {
  return {times * change, peak + std::max<int64_t>(0, (times - 1) * change)};
}

bool MovesForNext(const ParallelConfig& layout) { return layout.zero >= 2; }

bool HasLaterPasses(const ParallelConfig& layout, int64_t micro_batches) {
  return !MovesForNext(layout) || layout.pp > 1 || micro_batches > 1;
}

RecordedLayers LayersToRecord(const RunConfig& run, const ModelChunk& chunk,
                              const RecomputeGroup& group) {
  const RecomputeConfig& plan = run.layout.recompute[0];
  int64_t first = group.first;
  int64_t end = group.first + group.count;
  const auto within = [&] { return RecomputeWithin(plan, first, end - first); };
  if (!MovesForNext(run.layout)) return {first, group.count, within()};
  if (first > 0) first = RecomputeGroupOf(plan, first - 1, chunk.num_layers).first;
  if (end < chunk.num_layers) end += RecomputeGroupOf(plan, end, chunk.num_layers).count;
  const bool amid = first < group.first && group.first + group.count < end;
  return {first, end - first, within(), chunk.embedding && !amid, chunk.head && !amid, amid};
}

RecordedLayers EndsToRecord(const RunConfig& run, const ModelChunk& chunk) {
  RecordedLayers ends = {.recompute = {}, .embedding = chunk.embedding, .head = chunk.head};
  if (run.layout.recompute[0].modules.Has(RecomputeModule::kLogits)) {
    ends.recompute.kind = RecomputeKind::kSelective;
    ends.recompute.modules.Add(RecomputeModule::kLogits);
  }
  return ends;
}

MicroBatchRecording RecordMicroBatch(const RunConfig& run, const ModelChunk& chunk,
                                     const Executor& executor, bool later) {
  Stage stage(run, executor);
  Device& device = *stage.device;
  GptModel model(stage.store, stage.context, chunk);
  ShardedDataParallel data_parallel(stage.parallel, stage.store, device, stage.context.fp8);
  model.set_hooks(&data_parallel);
  if (stage.context.fp8 != nullptr) {
    stage.fp8.Allocate(device, /*in_flight=*/1, !data_parallel.shards().weights_sharded());
  }

  const MicroBatch ids = NewBatches(stage.context, chunk, 1).front();
  const Tensor scalar = Tensor::Empty(device, {1}, DType::kF32, MemoryTag::kOptimizer);
  Tensor loss_sum = scalar;
  PieceRecorder recorder(device);
  MicroBatchRecording recording;
  // What other chunks send is in memory before the pieces that take it begin.
  const auto received = [&](bool needed, ActionKind kind) {
    return needed ? NewMessage(stage.context, kind) : Tensor();
  };
  for (const bool first : {true, false}) {
    if (!first && !later) break;
    MicroBatchState state;
    MicroBatch batch = ids;
    batch.hidden = received(!chunk.embedding, ActionKind::kRecvActivation);
    Tensor result = model.Forward(batch, scalar, loss_sum, state);
    batch = {};
    recording.ways[first ? kForwardFirst : kForwardLater] = recorder.Take();
    result = received(!chunk.head, ActionKind::kRecvGradient);
    data_parallel.StartBackward(first, /*last=*/false);
    const bool accumulate = data_parallel.accumulates();
    if (run.layout.schedule == Schedule::kZeroBubble) {
      result = model.BackwardInput(state, std::move(result), accumulate);
      data_parallel.FinishBackward();
      recording.ways[first ? kInputSetting : kInputAdding] = recorder.Take();
      model.BackwardWeight(state, accumulate);
      data_parallel.FinishBackward();
      recording.ways[first ? kWeightSetting : kWeightAdding] = recorder.Take();
    } else {
      result = model.Backward(state, std::move(result), accumulate);
      data_parallel.FinishBackward();
      recording.ways[first ? kBackwardSetting : kBackwardAdding] = recorder.Take();
    }
  }
  return recording;
}

MessageRecording RecordMessages(const RunConfig& run, const Executor& executor) {
  const Stage stage(run, executor);
  const auto record = [&stage](ActionKind kind) {
    Tensor message = NewMessage(stage.context, kind);
    PieceRecorder recorder(*stage.device);
    stage.device->EnterPiece({});
    stage.parallel.pp->RecvAsync(message, 1).Wait();
    return std::get<CommRecord>(recorder.Take().front().events.front());
  };
  return {.activation = record(ActionKind::kRecvActivation),
          .gradient = record(ActionKind::kRecvGradient)};
}

int64_t RecordIds(const RunConfig& run, const ModelChunk& chunk, int64_t in_flight,
                  const Executor& executor) {
  const Stage stage(run, executor);
  const std::vector<MicroBatch> batches = NewBatches(stage.context, chunk, in_flight);
  return stage.device->memory().current_total();
}

UpdateRecording RecordUpdate(const RunConfig& run, int64_t stage, StageProgram program,
                             const Executor& executor) {
  StageTrainer rank(run, stage, std::move(program), executor);
  UpdateRecording recording;
  recording.held = rank.Held();
  PieceRecorder recorder(*rank.device);
  rank.device->EnterPiece({PieceKind::kUpdate});
  rank.trainer.ReduceGradients();
  recording.reduction = std::move(recorder.Take().front());
  rank.trainer.EndStep();
  recording.update = std::move(recorder.Take().front());
  return recording;
}

BytesByTag RecordHeld(const RunConfig& run, int64_t stage, StageProgram program,
                      const Executor& executor) {
  return StageTrainer(run, stage, std::move(program), executor).Held();
}

std::vector<int64_t> FirstAlike(const RunConfig& run) {
  const bool by_name =
      (TypesOf(run.layout.numerics).fp8 && !run.fp8.bf16_layers.empty()) || !run.frozen.empty();
  // Which linear layers are in fp8, and which parameters are trained.
  const auto named = [&run](int64_t number) {
    const Executor any;
    Stage stage(run, any);
    const TransformerLayer layer(stage.store, stage.context, number, run.model.layer(number));
    std::vector<bool> flags = stage.fp8.InFp8();
    for (const Parameter* each : stage.store.parameters()) flags.push_back(each->spec.trainable);
    return flags;
  };
  std::vector<int64_t> alike;
  std::vector<std::pair<LayerSpec, std::vector<bool>>> seen;
  for (int64_t i = 0; i < run.model.num_layers; ++i) {
    seen.emplace_back(run.model.layer(i), by_name ? named(i) : std::vector<bool>());
    alike.push_back(std::find(seen.begin(), seen.end(), seen.back()) - seen.begin());
  }
  return alike;
}

int64_t FirstLayersAlike(const std::vector<int64_t>& first_alike, const ModelChunk& chunk) {
  const auto layers = first_alike.begin() + chunk.first_layer;
  const auto end = layers + chunk.num_layers;
  return std::search(first_alike.begin(), end, layers, end) - first_alike.begin();
}

}  // namespace trimtab
