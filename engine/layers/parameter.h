// Parameters: declared by layers, stored in one flat buffer of weights and one of gradients.
//
// The flat buffers hold first every tensor-parallel parameter, duplicates last, then every
// replicated one, each in declaration order, at a multiple of kParameterAlignment elements: aligned
// for vector and tensor core loads, and for the blocks of the optimizer's scaled state. Layers are
// declared in forward order, so the backward pass completes the first part from its end:
// data-parallel buckets can leave as soon as they are complete. The last part is contiguous, so
// that sequence parallelism reduces it with one message.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/tensor.h"

namespace trimtab {

/// Rows [local_begin, local_begin + rows) of the rank's shard are the rows from global_begin on of
/// the full parameter.
struct RowSegment {
  int64_t local_begin = 0;
  int64_t global_begin = 0;
  int64_t rows = 0;
};

/// Which part of a full parameter a rank holds. Every parameter is a matrix [rows, columns]; a
/// vector has one column. Local rows outside every segment are padding and stay zero.
struct Partition {
  int64_t full_rows = 0;
  int64_t full_columns = 1;
  std::vector<RowSegment> segments;
  int64_t column_begin = 0;  // the shard holds columns [column_begin, column_begin + local columns)
};

enum class InitKind { kZeros, kOnes, kNormal };

struct ParameterSpec {
  std::string name;  // Megatron-Core's, e.g. "decoder.layers.0.mlp.linear_fc1.weight"
  int64_t rows = 0;  // of the local shard, padding included
  int64_t columns = 1;
  bool is_matrix = true;        // weight decay applies; otherwise the local shape is [rows]
  bool tensor_parallel = true;  // sharded over tp; false = the same on every tp rank
  bool duplicate = false;       // an earlier pipeline stage has it too, and counts it
  InitKind init = InitKind::kZeros;
  double init_std = 0;
  Partition partition;
};

struct Parameter {
  ParameterSpec spec;
  int64_t offset = 0;  // first element in the flat buffers
  Tensor weight;       // [rows, columns] or [rows]
  Tensor gradient;

  int64_t numel() const { return spec.rows * spec.columns; }
};

/// Elements.
inline constexpr int64_t kParameterAlignment = 128;

class ParameterStore {
 public:
  /// Adds a parameter. The reference stays valid; its tensors are undefined until Allocate().
  Parameter& Declare(ParameterSpec spec);

  /// Gives every parameter its place in the flat buffers. Once, after the last Declare; Allocate
  /// does it itself.
  void Place();
  /// Allocates the flat buffers of the given types, divisible into `shards` aligned parts (padding
  /// is zero), and binds every parameter to its place.
  void Allocate(Device& device, DType weights, DType gradients, int64_t shards);

  /// Receives the initial values of elements [begin, begin + values.size()) of the flat buffer.
  using PutValues = std::function<void(int64_t begin, std::span<const float> values)>;
  /// Zeroes the buffers and makes the initial weights. A value depends only on seed, name and the
  /// position in the full parameter, so every layout starts from the same model. `put` takes the
  /// values; without one they are rounded into weights(). No effect on meta.
  void Initialize(uint64_t seed, const PutValues& put = {});

  Tensor& weights() { return weights_; }      // [padded_numel]
  Tensor& gradients() { return gradients_; }  // [padded_numel]
  int64_t padded_numel() const { return weights_.numel(); }
  /// Elements [0, tensor_parallel_numel) are sharded over tp, the rest is replicated.
  int64_t tensor_parallel_numel() const { return tensor_parallel_numel_; }
  /// Of these, elements [0, own_tensor_parallel_numel) are no duplicates.
  int64_t own_tensor_parallel_numel() const { return own_tensor_parallel_numel_; }
  /// All of them, gaps included.
  int64_t numel() const { return numel_; }

  /// In flat order.
  const std::vector<Parameter*>& parameters() const { return ordered_; }

 private:
  std::vector<std::unique_ptr<Parameter>> declared_;
  std::vector<Parameter*> ordered_;
  Tensor weights_;
  Tensor gradients_;
  int64_t numel_ = 0;
  int64_t tensor_parallel_numel_ = 0;
  int64_t own_tensor_parallel_numel_ = 0;
};

/// A shard of contiguous rows: rank `tp_rank` of `tp` holds its share of each block of rows. Fused
/// projections list their blocks (query, key, value), which are sharded one by one.
Partition RowBlocksPartition(const std::vector<int64_t>& block_rows, int64_t columns, int64_t tp,
                             int64_t tp_rank);

/// A shard of contiguous columns.
Partition ColumnPartition(int64_t rows, int64_t columns, int64_t tp, int64_t tp_rank);

/// The whole parameter on every rank.
Partition WholePartition(int64_t rows, int64_t columns);

}  // namespace trimtab
