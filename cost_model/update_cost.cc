#include "cost_model/update_cost.h"

#include <algorithm>
#include <utility>

#include "engine/base/units.h"
#include "engine/ops/adamw.h"
#include "engine/ops/elementwise.h"
#include "engine/parallel/gradient_reducer.h"

namespace trimtab {
namespace {

constexpr int64_t kElement = 4;  // weights, gradients and moments are fp32

/// Collects one of the two parts of the flat buffer in declaration order.
class FlatBuilder {
 public:
  void Matrix(int64_t numel) { Append(numel, true); }
  void Vector(int64_t numel) { Append(numel, false); }

  void Append(int64_t numel, bool decay) {
    flat_.numel += numel;
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

  void Op(const OpRecord& op) {
    cost_.optimizer_s += pricer_.Seconds(op);
    ++cost_.ops;
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
  const int64_t replicated_bytes = kElement * (flat.numel - flat.tensor_parallel_numel);
  if (shape.sequence_parallel) {
    meter.TensorMessage(CollectiveKind::kAllReduce, replicated_bytes);
  }
  if (shape.dp == 1) return;
  if (shape.sharded) {
    meter.DataMessage(CollectiveKind::kReduceScatter, kElement * padded_numel);
    return;
  }
  for (const Bucket& bucket :
       PlanBuckets(flat.bucket_cuts, flat.tensor_parallel_numel, kBucketBytes / kElement)) {
    meter.DataMessage(CollectiveKind::kAllReduce, kElement * (bucket.end - bucket.begin));
  }
  meter.DataMessage(CollectiveKind::kAllReduce, replicated_bytes);
}

}  // namespace

FlatLayout PlanFlatLayout(const ModelConfig& model, int64_t tp) {
  const int64_t hidden = model.hidden_size;
  const bool layer_norm = model.norm == NormKind::kLayerNorm;
  const int64_t vocab_table = model.padded_vocab_size(tp) / tp * hidden;
  const int64_t norm_vectors = hidden * (layer_norm ? 2 : 1);

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
      replicated.Vector(norm_vectors);
      sharded.Matrix(column_out / tp * hidden);
      if (model.bias) sharded.Vector(column_out / tp);
      sharded.Matrix(hidden * (row_in / tp));
      if (model.bias) replicated.Vector(hidden);
    }
  }
  replicated.Vector(norm_vectors);
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

UpdateCost PriceUpdate(const FlatLayout& flat, const UpdateShape& shape, const Pricer& pricer) {
  const int64_t padded_numel = RoundUp(flat.numel, shape.dp);
  const int64_t shard = shape.sharded ? padded_numel / shape.dp : padded_numel;  // rank 0's: first
  Meter meter(shape, pricer);
  ReduceGradients(flat, shape, padded_numel, meter);

  meter.DataMessage(CollectiveKind::kAllReduce, kElement);  // the loss
  const int64_t first_part = std::min(flat.tensor_parallel_numel, shard);
  const int64_t second_part = std::min(flat.numel, shard) - first_part;
  meter.Op(SumSquaresRecord(first_part));
  if (second_part > 0) meter.Op(SumSquaresRecord(second_part));
  if (shape.sharded) meter.DataMessage(CollectiveKind::kAllReduce, 2 * kElement);
  meter.TensorMessage(CollectiveKind::kAllReduce, kElement);

  int64_t begin = 0;
  for (const DecayRun& run : flat.runs) {
    if (begin >= shard) break;
    meter.Op(AdamWRecord(std::min(run.end, shard) - begin));
    begin = run.end;
  }
  if (shape.sharded) meter.DataMessage(CollectiveKind::kAllGather, kElement * padded_numel);

  UpdateCost& cost = meter.cost();
  cost.weight_bytes = kElement * padded_numel;
  cost.gradient_bytes = kElement * padded_numel;
  cost.optimizer_bytes = 2 * kElement * shard;
  return cost;
}

}  // namespace trimtab
