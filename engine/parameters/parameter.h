// Parameters: declared by layers, placed in one flat order, unit by unit.
//
// A unit is what is used together: the positions, one layer, the head; and the token table, which
// embedding and head may share. The experts of a layer, which other ranks hold too than the rest of
// it, are a unit of their own that the layer's also uses. A unit holds first its tensor-parallel
// parameters, then the replicated ones, so that sequence parallelism sums those with one message;
// vectors stand together in the middle, so that weight decay changes seldom and their gradients can
// be kept apart. Frozen parameters, which are never updated, are units of their own too, and stand
// behind all trained ones. Each parameter begins at a multiple of kParameterAlignment elements:
// aligned for vector and tensor core loads, and for the blocks of the optimizer's scaled state.
// Units stand in forward order. Whether all of them are in memory at once is for data parallelism
// to decide (engine/parallel).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/inline_vector.h"
#include "engine/comm/process_groups.h"
#include "engine/device/tensor.h"
#include "engine/ops/packed/packed_gemm.h"
#include "engine/parameters/buffers.h"
#include "engine/parameters/module_name.h"

namespace trimtab {

/// Rows [local_begin, local_begin + rows) of the rank's shard are the rows from global_begin on of
/// the full parameter.
struct RowSegment {
  int64_t local_begin;
  int64_t global_begin;
  int64_t rows;
};

/// Which part of a full parameter a rank holds. Every parameter is a matrix [rows, columns]; a
/// vector has one column. Local rows outside every segment are padding and stay zero.
struct Partition {
  int64_t full_rows = 0;
  int64_t full_columns = 1;
  InlineVector<RowSegment, 3> segments;  // of query, key and value
  int64_t column_begin = 0;  // the shard holds columns [column_begin, column_begin + local columns)
};

/// Rows of a shard that several neighbouring tensor-parallel ranks hold alike: keys and values,
/// where there are fewer of their heads than ranks. Their gradients are summed over those ranks;
/// the first of them counts them in the gradient norm, and writes them to checkpoints.
struct CopiedRows {
  int64_t first = 0;
  int64_t rows = 0;
  int64_t copies = 1;  // ranks; 1: there are no such rows

  /// Whether they are another rank's to count and to write.
  bool of_another(int64_t tp_rank) const { return tp_rank % copies != 0; }
};

enum class InitKind { kZeros, kOnes, kNormal };

struct ParameterSpec {
  ModuleName name;   // Megatron-Core's, e.g. "decoder.layers.0.mlp.linear_fc1.weight"
  int64_t rows = 0;  // of the local shard, padding included
  int64_t columns = 1;
  bool is_matrix = true;  // weight decay applies; otherwise the local shape is [rows]
  ParallelGrid grid =
      ParallelGrid::kDense;     // kExperts: of experts, of which an ep rank holds its own
  bool tensor_parallel = true;  // sharded over tp (etp of experts); false = the same on all of them
  bool duplicate = false;       // an earlier pipeline stage has it too, and counts it
  bool trainable = true;        // false: frozen, it has neither gradient nor optimizer state
  int64_t multiplied = 0;       // matrices, one below the other, that rows are multiplied by
  bool looked_up = false;       // rows of it are read as they are
  bool vocabulary = false;      // a row stands for a token
  int64_t absorbed_rows = 0;    // of each matrix: serving multiplies by their transpose
  InitKind init = InitKind::kZeros;
  double init_std = 0;
  Partition partition;
  CopiedRows copied{};
};

/// Elements.
inline constexpr int64_t kParameterAlignment = 128;

/// Elements [begin, end) of the flat order.
struct FlatRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t numel() const { return end - begin; }
  bool operator==(const FlatRange&) const = default;
};

struct Parameter {
  Parameter(ParameterSpec&& declared, size_t in_unit) : spec(std::move(declared)), unit(in_unit) {}

  ParameterSpec spec;
  size_t unit;         // index among the store's
  int64_t offset = 0;  // first element in the flat order
  Tensor weight;       // [rows, columns] or [rows]; undefined while it is not in memory
  Tensor gradient;
  PackedMatrix packed;  // in the place of `weight`: serving multiplies by this
  // Likewise, of a parameter that is absorbed: of each matrix the transpose of its first
  // spec.absorbed_rows rows, which `packed` has the others of.
  PackedMatrix packed_absorbed;

  int64_t numel() const { return spec.rows * spec.columns; }
  /// What of the flat order spec.copied is.
  FlatRange copied() const {
    const int64_t begin = offset + spec.copied.first * spec.columns;
    return {begin, begin + spec.copied.rows * spec.columns};
  }
};

struct ParameterUnit {
  ParallelGrid grid = ParallelGrid::kDense;  // of all its parameters
  bool trainable = true;                     // likewise
  size_t part_of = 0;                  // the unit that was begun: itself, or the one it belongs to
  size_t first_parameter = 0;          // once placed: index among the store's
  size_t end_parameter = 0;            // one past its last one
  std::vector<size_t> also_uses;       // other units whose parameters it uses
  int users = 0;                       // units that use its parameters as well
  bool reads_weights_backward = true;  // its backward pass reads weights
  FlatRange range;                     // padding included
  FlatRange tensor_parallel;           // split over tp, or etp
  FlatRange replicated;                // the same on every rank of it
  FlatRange vectors;                   // of both: what is no matrix
  std::vector<FlatRange> gaps;         // what no parameter takes
};

/// Into how many parts units are cut, by grid.
struct ShardCounts {
  int64_t dense = 1;
  int64_t experts = 1;

  int64_t of(ParallelGrid grid) const { return grid == ParallelGrid::kDense ? dense : experts; }
};

class ParameterStore {
 public:
  /// Parameters with a name that one of `frozen` matches (MatchesPattern) are frozen.
  explicit ParameterStore(std::vector<std::string> frozen = {}) : frozen_(std::move(frozen)) {}

  /// What is declared from now on belongs to a new unit. Without a call there is one unit.
  ParameterStore& BeginUnit(bool reads_weights_backward = true);
  /// The unit that was begun last.
  size_t current_unit() const { return current_; }
  /// Adds a parameter to the unit, or to that of its experts or of its frozen parameters. The
  /// reference stays valid; its tensors are undefined until they are bound.
  Parameter& Declare(ParameterSpec spec);
  /// Says that the unit also uses an earlier one, that of `parameter`. A unit that others use is
  /// not used on its own.
  void AlsoUse(const Parameter& parameter);

  /// Gives every parameter its place, and every unit so many aligned parts, or a multiple. Once,
  /// after all is declared.
  void Place(const ShardCounts& shards);
  /// Makes the weights (gradients) of a unit views of `values` [unit.range.numel()]; undefined
  /// `values` unbind them.
  void BindWeights(size_t unit, const Tensor& values);
  void BindGradients(size_t unit, const Tensor& values);
  /// The same for the vectors of the unit alone, of `values` [unit.vectors.numel()].
  void BindVectorGradients(size_t unit, const Tensor& values);
  /// Place({}), and zeroed memory for all weights, gradients and buffers: as one rank on its own
  /// has them.
  void Allocate(Device& device, DType weights, DType gradients);

  /// Receives initial values of a parameter, from its element `begin` on.
  using PutValues =
      std::function<void(const Parameter& parameter, int64_t begin, std::span<const float> values)>;
  /// Makes the initial weights, on the host with `threads` threads. A value depends only on seed,
  /// name and the position in the full parameter, so every layout starts from the same model.
  void MakeInitialValues(uint64_t seed, int threads, const PutValues& put) const;
  /// Rounds them into the weights, all of which are bound. No effect on meta.
  void Initialize(uint64_t seed);

  /// What layers keep beside their parameters.
  BufferStore& buffers() { return buffers_; }
  const BufferStore& buffers() const { return buffers_; }

  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Unit by unit.
  const std::vector<Parameter*>& parameters() const { return ordered_; }
  std::span<Parameter* const> ParametersOf(const ParameterUnit& unit) const {
    return std::span(ordered_).subspan(unit.first_parameter,
                                       unit.end_parameter - unit.first_parameter);
  }
  /// Of the flat order, padding included.
  int64_t numel() const { return numel_; }
  /// Of its trained units, which come first.
  int64_t trained_numel() const { return trained_numel_; }

 private:
  /// The unit of the current one's parameters of that kind, made when it is first asked for.
  size_t UnitOf(ParallelGrid grid, bool trainable);
  void PlaceUnit(ParameterUnit& unit, const ShardCounts& shards);
  /// Brings the parameters of each unit together, in the order in which they stand there.
  void SortByPlace();

  /// In blocks of equal capacity, which never grow: parameters stay where they are.
  std::vector<std::vector<Parameter>> declared_;
  std::vector<ParameterUnit> units_;
  size_t current_ = 0;
  std::vector<Parameter*> ordered_;  // as declared, until they are placed
  bool placed_ = false;
  int64_t numel_ = 0;
  int64_t trained_numel_ = 0;
  std::vector<std::string> frozen_;  // patterns of names
  BufferStore buffers_;
};

/// Threads that make initial values for `device`.
int HostThreads(const Device& device);

/// A shard of contiguous rows: rank `tp_rank` of `tp` holds its share of each block of rows. Fused
/// projections list their blocks (query, key, value), which are sharded one by one; of those after
/// the first, `copies` neighbouring ranks have the same share.
using RowBlocks = InlineVector<int64_t, 3>;
Partition RowBlocksPartition(const RowBlocks& block_rows, int64_t columns, int64_t tp,
                             int64_t tp_rank, int64_t copies = 1);

/// A shard of contiguous columns.
Partition ColumnPartition(int64_t rows, int64_t columns, int64_t tp, int64_t tp_rank);

/// The whole parameter on every rank.
Partition WholePartition(int64_t rows, int64_t columns);

}  // namespace trimtab
