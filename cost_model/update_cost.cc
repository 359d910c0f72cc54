#include "cost_model/update_cost.h"

#include <algorithm>
#include <utility>

#include "engine/base/units.h"
#include "engine/layers/parameter.h"
#include "engine/ops/adamw.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/quantize.h"
#include "engine/parallel/gradient_reducer.h"

namespace trimtab {
namespace {

constexpr int64_t kFp32Bytes = 4;

// fp32 scalars in the optimizer's memory: two sums, the update's, gradient scale and loss sum.
constexpr int64_t kOptimizerScalars = 2 + kUpdateScalarCount + 2;

/// Collects one of the two parts of the flat buffer in declaration order.
class FlatBuilder {
 public:
  void Matrix(int64_t numel) { Append(numel, true); }
  void Vector(int64_t numel) { Append(numel, false); }

  void Append(int64_t numel, bool decay) {
    flat_.numel += RoundUp(numel, kParameterAlignment);
    if (!flat_.runs.empty() && flat_.runs.back().decay == decay) {
      flat_.runs.back().end = flat_.numel;
    } else {
      flat_.runs.push_back({flat_.numel, decay});
    }
  }
  FlatLayout& flat() { return flat_; }

 private:
  FlatLayout flat_;
};

/// Counts and prices what happens to the flat buffers.
class Meter {
 public:
  Meter(const UpdateShape& shape, const Pricer& pricer) : shape_(shape), pricer_(pricer) {}

  UpdateCost& cost() { return cost_; }

  void Op(const OpRecord& op, int64_t times = 1) {
    if (times == 0) return;
    cost_.optimizer_s += static_cast<double>(times) * pricer_.Seconds(op);
    cost_.ops += times;
  }
  void TensorMessage(CollectiveKind kind, int64_t bytes) {
    if (shape_.tp == 1) return;
    Count(kind, GroupKind::kTensor, bytes);
    cost_.tp_s += pricer_.Seconds({kind, GroupKind::kTensor, shape_.tp, bytes}, 1);
  }
  void DataMessage(CollectiveKind kind, int64_t bytes) {
    if (shape_.dp == 1) return;
    Count(kind, GroupKind::kData, bytes);
    cost_.dp_s += pricer_.Seconds({kind, GroupKind::kData, shape_.dp, bytes}, shape_.tp);
  }

 private:
  void Count(CollectiveKind kind, GroupKind group, int64_t bytes) {
    CommTotal& total = cost_.comm.at(kind, group);
    ++total.count;
    total.bytes += bytes;
  }

  const UpdateShape& shape_;
  const Pricer& pricer_;
  UpdateCost cost_;
};

void ReduceGradients(const FlatLayout& flat, const UpdateShape& shape, int64_t padded_numel,
                     Meter& meter) {
  const int64_t element = SizeOf(shape.types.gradients);
  const int64_t replicated_bytes = element * (flat.numel - flat.tensor_parallel_numel);
  if (shape.sequence_parallel) {
    meter.TensorMessage(CollectiveKind::kAllReduce, replicated_bytes);
  }
  if (shape.dp == 1) return;
  if (shape.sharded) {
    meter.DataMessage(CollectiveKind::kReduceScatter, element * padded_numel);
    return;
  }
  for (const Bucket& bucket :
       PlanBuckets(flat.bucket_cuts, flat.tensor_parallel_numel, kBucketBytes / element)) {
    meter.DataMessage(CollectiveKind::kAllReduce, element * (bucket.end - bucket.begin));
  }
  meter.DataMessage(CollectiveKind::kAllReduce, replicated_bytes);
}

/// Fp8State::EndStep: the scales of the next step.
void EndFp8Step(const Fp8Weights& fp8, Meter& meter) {
  if (!fp8.delayed || fp8.count() == 0) return;
  const int64_t slots = 2 * fp8.count();  // inputs and gradients
  meter.TensorMessage(CollectiveKind::kAllReduce, kFp32Bytes * slots);
  meter.DataMessage(CollectiveKind::kAllReduce, kFp32Bytes * slots);
  meter.Op(Fp8ScalesRecord(slots, fp8.history));
}

/// Fp8State::QuantizeWeights.
void QuantizeWeights(const Fp8Weights& fp8, DType weights, Meter& meter) {
  if (fp8.count() == 0) return;
  for (size_t kind = 0; kind < kLinearKindCount; ++kind) {
    const LinearShape& shape = fp8.shapes[kind];
    meter.Op(AmaxRecord(shape.rows * shape.columns, weights), fp8.layers[kind]);
    meter.Op(QuantizeRecord(shape.rows, shape.columns, weights, true, true), fp8.layers[kind]);
  }
  meter.TensorMessage(CollectiveKind::kAllReduce, kFp32Bytes * fp8.count());
  meter.Op(Fp8ScalesRecord(fp8.count(), 1));
}

/// What Fp8State allocates: weights and their transposes, scales and largest values.
int64_t Fp8Bytes(const Fp8Weights& fp8) {
  int64_t bytes = 0;
  for (size_t kind = 0; kind < kLinearKindCount; ++kind) {
    bytes += 2 * fp8.layers[kind] * fp8.shapes[kind].rows * fp8.shapes[kind].columns;
  }
  const int64_t count = fp8.count();
  const int64_t slots = 2 * count;
  const int64_t history = fp8.delayed ? fp8.history : 0;
  // Per slot its history, scale, inverse and limit; per weight the last three and the newest; and
  // the largest value of the tensor at hand.
  return bytes + kFp32Bytes * (slots * (history + 3) + 4 * count + 1);
}

int64_t OptimizerBytes(const TrainingTypes& types, int64_t shard) {
  int64_t element = 2 * SizeOf(types.moments);
  if (types.has_master) element += SizeOf(types.master);
  int64_t bytes = element * shard + kFp32Bytes * kOptimizerScalars;
  if (types.moments == DType::kF16) {
    bytes += 2 * kFp32Bytes * (RoundUp(shard, kMomentBlock) / kMomentBlock);
  }
  return bytes;
}

}  // namespace

FlatLayout PlanFlatLayout(const ModelConfig& model, int64_t tp) {
  const int64_t hidden = model.hidden_size;
  const bool layer_norm = model.norm == NormKind::kLayerNorm;
  const int64_t vocab_table = model.padded_vocab_size(tp) / tp * hidden;
  const int norm_vectors = layer_norm ? 2 : 1;

  FlatBuilder sharded;
  FlatBuilder replicated;
  sharded.Matrix(vocab_table);
  if (model.position == PositionKind::kLearned) {
    replicated.Matrix(model.max_sequence_length * hidden);
  }
  std::vector<int64_t> cuts;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    cuts.push_back(sharded.flat().numel);
    // Attention, then MLP: a norm, a column-parallel linear layer, a row-parallel one.
    for (const auto& [column_out, row_in] :
         {std::pair{model.qkv_size(), hidden}, {model.fc1_size(), model.ffn_hidden_size}}) {
      for (int i = 0; i < norm_vectors; ++i) replicated.Vector(hidden);
      sharded.Matrix(column_out / tp * hidden);
      if (model.bias) sharded.Vector(column_out / tp);
      sharded.Matrix(hidden * (row_in / tp));
      if (model.bias) replicated.Vector(hidden);
    }
  }
  for (int i = 0; i < norm_vectors; ++i) replicated.Vector(hidden);
  if (!model.tied_embeddings) sharded.Matrix(vocab_table);

  FlatLayout flat = std::move(sharded.flat());
  flat.tensor_parallel_numel = flat.numel;
  flat.bucket_cuts = std::move(cuts);
  // Runs join across the boundary of the two parts, as the optimizer joins neighbours.
  for (const DecayRun& run : replicated.flat().runs) {
    const int64_t end = flat.tensor_parallel_numel + run.end;
    if (flat.runs.back().decay == run.decay) {
      flat.runs.back().end = end;
    } else {
      flat.runs.push_back({end, run.decay});
    }
  }
  flat.numel += replicated.flat().numel;
  return flat;
}

std::array<LinearShape, kLinearKindCount> LinearShapes(const ModelConfig& model, int64_t tp) {
  const int64_t hidden = model.hidden_size;
  std::array<LinearShape, kLinearKindCount> shapes;
  shapes[kQkv] = {model.qkv_size() / tp, hidden};
  shapes[kProj] = {hidden, hidden / tp};
  shapes[kFc1] = {model.fc1_size() / tp, hidden};
  shapes[kFc2] = {hidden, model.ffn_hidden_size / tp};
  return shapes;
}

UpdateCost PriceUpdate(const FlatLayout& flat, const UpdateShape& shape, const Pricer& pricer) {
  const TrainingTypes& types = shape.types;
  const int64_t padded_numel = RoundUp(flat.numel, shape.dp * kParameterAlignment);
  const int64_t shard = shape.sharded ? padded_numel / shape.dp : padded_numel;  // rank 0's: first
  Meter meter(shape, pricer);
  ReduceGradients(flat, shape, padded_numel, meter);
  EndFp8Step(shape.fp8, meter);

  const int64_t first_part = std::min(flat.tensor_parallel_numel, shard);
  const int64_t second_part = std::min(flat.numel, shard) - first_part;
  meter.Op(SumSquaresRecord(first_part, types.gradients));
  meter.Op(second_part > 0 ? SumSquaresRecord(second_part, types.gradients) : FillRecord(1));
  if (shape.sharded) meter.DataMessage(CollectiveKind::kAllReduce, 2 * kFp32Bytes);
  meter.TensorMessage(CollectiveKind::kAllReduce, kFp32Bytes);
  meter.Op(ClipRecord(2));

  const AdamWTypes update = {.weight = types.weights,
                             .master = types.master,
                             .moments = types.moments,
                             .gradient = types.gradients};
  int64_t begin = 0;
  for (const DecayRun& run : flat.runs) {
    if (begin >= shard) break;
    meter.Op(AdamWRecord(std::min(run.end, shard) - begin, update));
    begin = run.end;
  }
  if (shape.sharded) {
    meter.DataMessage(CollectiveKind::kAllGather, SizeOf(types.weights) * padded_numel);
  }
  QuantizeWeights(shape.fp8, types.weights, meter);
  meter.DataMessage(CollectiveKind::kAllReduce, kFp32Bytes);  // the loss

  UpdateCost& cost = meter.cost();
  cost.weight_bytes = SizeOf(types.weights) * padded_numel;
  if (types.fp8) cost.weight_bytes += Fp8Bytes(shape.fp8);
  cost.gradient_bytes = SizeOf(types.gradients) * padded_numel;
  cost.optimizer_bytes = OptimizerBytes(types, shard);
  return cost;
}

}  // namespace trimtab
