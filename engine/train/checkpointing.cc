#include "engine/train/checkpointing.h"
#include "engine/runtime/whole_model.h"

#include <algorithm>
#include <map>

namespace trimtab {
namespace {

/// Elements of a parameter.
struct Part {
  int64_t begin = 0;
  int64_t numel = 0;
};

/// Those that this rank updates.
Part OwnPart(Trainer& trainer, const Parameter& parameter) {
  const OwnedPart owned =
      trainer.shards().Within({parameter.offset, parameter.offset + parameter.numel()});
  return {owned.begin - parameter.offset, owned.numel};
}

/// Those of the weights that this rank updates; with `whole`, all.
Part WeightsOf(Trainer& trainer, const Parameter& parameter, bool whole) {
  return whole ? Part{0, parameter.numel()} : OwnPart(trainer, parameter);
}

/// Calls move(parameter, part) for the weights that this rank updates, for all it keeps with
/// `whole_weights`, and move_state(name, slot, parameter, part) for the state of the former.
template <typename Move, typename MoveState>
void ForEachSlice(Trainer& trainer, bool whole_weights, const Move& move,
                  const MoveState& move_state) {
  for (const Parameter* parameter : trainer.parameters().parameters()) {
    const Part own = OwnPart(trainer, *parameter);
    const Part weights = WeightsOf(trainer, *parameter, whole_weights);
    if (weights.numel > 0) move(*parameter, weights);
    if (own.numel == 0) continue;
    const std::vector<StateSlot> slots = trainer.optimizer().SlotsOf(parameter->spec);
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      move_state(slots[slot].name, slot, *parameter, own);
    }
  }
}

/// The sum over all ranks.
void SumOverRanks(const ParallelContext& parallel, std::vector<float>& values) {
  const std::unique_ptr<Device> host = MakeCpuDevice(1);
  Tensor tensor = Tensor::Empty(*host, {static_cast<int64_t>(values.size())}, DType::kF32,
                                MemoryTag::kCommunication);
  CopyFromHost(tensor, values);
  parallel.host->AllReduce(tensor);
  CopyToHost(tensor, values);
}

/// The buffers of the whole model that belong to it, by name. Every rank calls it.
std::map<std::string, std::vector<float>> WholeBuffers(Trainer& trainer) {
  const ParallelContext& parallel = trainer.parallel();
  const WholeModelDeclaration whole = DeclareWholeModel(trainer);
  std::vector<float> values;
  for (const auto& buffer : whole.parameters.buffers().all()) {
    if (buffer->kind != BufferKind::kState) continue;
    std::vector<float> own(static_cast<size_t>(buffer->numel));
    // One rank of the stage that has it speaks.
    for (const auto& here : trainer.parameters().buffers().all()) {
      const bool speaks = parallel.tp_rank == 0 && parallel.dp->rank() == 0;
      if (speaks && here->name == buffer->name) CopyToHost(here->values, own);
    }
    values.insert(values.end(), own.begin(), own.end());
  }
  if (values.empty()) return {};
  if (parallel.layout.world_size() > 1) SumOverRanks(parallel, values);
  std::map<std::string, std::vector<float>> buffers;
  auto next = values.begin();
  for (const auto& buffer : whole.parameters.buffers().all()) {
    if (buffer->kind != BufferKind::kState) continue;
    buffers[buffer->name].assign(next, next + buffer->numel);
    next += buffer->numel;
  }
  return buffers;
}

/// The scales of all pipeline stages, in the order of the model.
Fp8Snapshot WholeSnapshot(Trainer& trainer) {
  const ParallelContext& parallel = trainer.parallel();
  const Fp8Snapshot own = trainer.fp8()->Snapshot();
  if (parallel.layout.pp == 1) return own;
  Fp8Snapshot whole;
  whole.layers = DeclareWholeModel(trainer).fp8.LayerNames();
  whole.history = trainer.run().fp8.history;
  // One rank of each stage puts its columns into [history + 2, S]: largest values, scales,
  // inverses. The last element counts who has any.
  const auto history = static_cast<size_t>(whole.history);
  const size_t columns = 2 * whole.layers.size();
  std::vector<float> values((history + 2) * columns + 1);
  const size_t own_columns = 2 * own.layers.size();
  const bool speaks = parallel.tp_rank == 0 && parallel.dp->rank() == 0;
  for (size_t from = 0; speaks && from < own_columns; ++from) {
    const auto layer = std::find(whole.layers.begin(), whole.layers.end(), own.layers[from / 2]);
    const size_t to = 2 * static_cast<size_t>(layer - whole.layers.begin()) + from % 2;
    for (size_t row = 0; row < history; ++row) {
      values[row * columns + to] = own.amax[row * own_columns + from];
    }
    values[history * columns + to] = own.scale[from];
    values[(history + 1) * columns + to] = own.inverse[from];
    values.back() = 1;
  }
  SumOverRanks(parallel, values);
  if (values.back() == 0) return {};
  const auto row = [&](size_t index) {
    return values.begin() + static_cast<int64_t>(index * columns);
  };
  whole.amax.assign(row(0), row(history));
  whole.scale.assign(row(history), row(history + 1));
  whole.inverse.assign(row(history + 1), row(history + 2));
  return whole;
}

/// What of `part` is this tensor-parallel rank's to write.
std::vector<Part> WithoutCopies(const Part& part, const CopiedRows& copied, int tp_rank,
                                int64_t columns) {
  if (!copied.of_another(tp_rank)) return {part};
  const int64_t begin = copied.first * columns;
  const int64_t end = begin + copied.rows * columns;
  const int64_t part_end = part.begin + part.numel;
  std::vector<Part> parts;
  if (part.begin < begin) parts.push_back({part.begin, std::min(part_end, begin) - part.begin});
  const int64_t after = std::max(part.begin, end);
  if (after < part_end) parts.push_back({after, part_end - after});
  return parts;
}

}  // namespace

CheckpointHeader HeaderOf(Trainer& trainer, int64_t step) {
  const RunConfig& run = trainer.run();
  CheckpointHeader header = {.run = run, .step = step, .samples = trainer.SamplesBefore(step)};
  if (TypesOf(run.layout.numerics).loss_scaling) {
    const LossScaler& scaler = trainer.loss_scaler();
    header.loss_scale = {scaler.scale(), scaler.good_steps(), scaler.skipped()};
  }
  if (trainer.fp8() != nullptr) header.fp8 = WholeSnapshot(trainer);
  header.buffers = WholeBuffers(trainer);
  return header;
}

void WriteState(Trainer& trainer, CheckpointWriter& writer) {
  trainer.AwaitWeights();
  const ParallelContext& parallel = trainer.parallel();
  std::vector<float> host;
  const auto write = [&](const char* slot, const Parameter& parameter, const Part& part,
                         const auto& read) {
    // Of ranks that have the same, the first one's is written.
    const ParallelGrid grid = parameter.spec.grid;
    if (trainer.shards().replica_group(grid).rank() != 0) return;
    const int split_rank = grid == ParallelGrid::kDense ? parallel.tp_rank : parallel.etp_rank;
    if (!parameter.spec.tensor_parallel && split_rank != 0) return;
    if (parameter.spec.duplicate) return;
    for (const Part& own :
         WithoutCopies(part, parameter.spec.copied, split_rank, parameter.spec.columns)) {
      host.resize(static_cast<size_t>(own.numel));
      read(parameter.offset + own.begin);
      writer.Write(slot, {.spec = &parameter.spec, .begin = own.begin, .values = host});
    }
  };
  ForEachSlice(
      trainer, /*whole_weights=*/false,
      [&](const Parameter& parameter, const Part& part) {
        write(kWeightSlot, parameter, part,
              [&](int64_t begin) { trainer.shards().ReadWeights(begin, host); });
      },
      [&](const char* name, size_t slot, const Parameter& parameter, const Part& part) {
        write(name, parameter, part,
              [&](int64_t begin) { trainer.optimizer().ReadState(parameter, slot, begin, host); });
      });
}

void ReadState(Trainer& trainer, const CheckpointReader& reader) {
  trainer.AwaitWeights();
  std::vector<float> host;
  const auto read = [&](const char* slot, const Parameter& parameter, const Part& part) {
    host.assign(static_cast<size_t>(part.numel), 0.0f);  // padding is in no checkpoint
    reader.Read(slot, {.spec = &parameter.spec, .begin = part.begin, .values = host});
  };
  ForEachSlice(
      trainer, /*whole_weights=*/!trainer.shards().weights_sharded(),
      [&](const Parameter& parameter, const Part& part) {
        read(kWeightSlot, parameter, part);
        trainer.shards().WriteWeights(parameter.offset + part.begin, host);
      },
      [&](const char* name, size_t slot, const Parameter& parameter, const Part& part) {
        read(name, parameter, part);
        trainer.optimizer().WriteState(parameter, slot, parameter.offset + part.begin, host);
      });
  const LossScaleState& scale = reader.header().loss_scale;
  if (scale.scale > 0) {
    trainer.loss_scaler().Restore(scale.scale, scale.good_steps, scale.skipped);
  }
  if (trainer.fp8() != nullptr) trainer.fp8()->Restore(reader.header().fp8);
  LoadBuffers(trainer.parameters().buffers(), reader.header().buffers, "checkpoint");
  trainer.GoOnFrom(reader.header().step, reader.header().samples);
  trainer.WeightsChanged();
}

void ReadWeights(Trainer& trainer, const WeightSource& source) {
  constexpr int64_t kAtOnce = int64_t{1} << 22;  // elements; what is held on the host beside them
  trainer.AwaitWeights();
  const bool whole = !trainer.shards().weights_sharded();
  std::vector<float> host;
  for (const Parameter* parameter : trainer.parameters().parameters()) {
    const Part part = WeightsOf(trainer, *parameter, whole);
    for (int64_t done = 0; done < part.numel; done += kAtOnce) {
      const int64_t begin = part.begin + done;
      // Padding is in no file.
      host.assign(static_cast<size_t>(std::min(kAtOnce, part.numel - done)), 0.0f);
      source.Read({.spec = &parameter->spec, .begin = begin, .values = host});
      trainer.shards().WriteWeights(parameter->offset + begin, host);
    }
  }
  LoadBuffers(trainer.parameters().buffers(), source.buffers(), "weights");
  trainer.WeightsChanged();
}

WholeModelDeclaration DeclareWholeModel(Trainer& trainer) {
  return {trainer.run(), trainer.parallel(), trainer.shards().device()};
}

std::vector<StoredParameter> StoredParameters(const RunConfig& run,
                                              const ParameterStore& parameters) {
  const TrainingTypes types = TypesOf(run.layout.numerics);
  std::vector<StoredParameter> stored;
  for (const Parameter* parameter : parameters.parameters()) {
    StoredParameter& added = stored.emplace_back(StoredParameter{.spec = &parameter->spec});
    for (const StateSlot& slot : SlotsOf(run.optimizer, parameter->spec, types)) {
      added.slots.emplace_back(slot.name);
    }
  }
  return stored;
}

}  // namespace trimtab
