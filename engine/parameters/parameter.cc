#include "engine/parameters/parameter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <thread>

#include "engine/base/units.h"
#include "engine/config/model/name_pattern.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {
namespace {

/// SplitMix64 (Steele et al., OOPSLA 2014): a well-mixed 64-bit value for each counter.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

/// Standard bell curve from one 64-bit value: the sum of four 16-bit uniforms (Irwin-Hall),
/// centred and scaled to variance 1. Cut at 3.46 deviations, which suits initial weights.
float BellCurve(uint64_t bits) {
  const auto part = [bits](int i) { return static_cast<float>((bits >> (16 * i)) & 0xFFFF); };
  const float sum = (part(0) + part(1)) + (part(2) + part(3));
  const float deviation = std::sqrt(4.0f / 12.0f) * 65536.0f;
  return (sum - 2.0f * 65535.0f) / deviation;
}

void FillRow(const ParameterSpec& spec, uint64_t key, int64_t global_row, std::span<float> row) {
  for (int64_t column = 0; column < spec.columns; ++column) {
    const int64_t index =
        global_row * spec.partition.full_columns + spec.partition.column_begin + column;
    float value = spec.init == InitKind::kOnes ? 1.0f : 0.0f;
    if (spec.init == InitKind::kNormal) {
      value =
          static_cast<float>(spec.init_std) * BellCurve(Mix(key ^ static_cast<uint64_t>(index)));
    }
    row[static_cast<size_t>(column)] = value;
  }
}

/// Rows of initial values made at a time, in elements: enough to hide the cost of a copy.
constexpr int64_t kChunk = int64_t{1} << 22;

/// Parameters in a block.
constexpr size_t kBlock = 64;

/// Places within a unit.
constexpr size_t kPlaces = 4;
/// Where a parameter stands within its unit.
size_t PlaceInUnit(const Parameter& parameter) {
  const bool matrix = parameter.spec.is_matrix;
  if (parameter.spec.tensor_parallel) return matrix ? 0 : 1;
  return matrix ? 3 : 2;
}

Tensor ViewOf(const Tensor& unit, const FlatRange& range, const Parameter& parameter) {
  if (!unit.defined()) return {};
  const ParameterSpec& spec = parameter.spec;
  const Shape shape = spec.is_matrix ? Shape{spec.rows, spec.columns} : Shape{spec.rows};
  return unit.Slice(parameter.offset - range.begin, shape);
}

}  // namespace

ParameterStore& ParameterStore::BeginUnit(bool reads_weights_backward) {
  units_.emplace_back().reads_weights_backward = reads_weights_backward;
  current_ = units_.size() - 1;
  units_[current_].part_of = current_;
  return *this;
}

size_t ParameterStore::UnitOf(ParallelGrid grid, bool trainable) {
  if (grid == ParallelGrid::kDense && trainable) return current_;
  for (const size_t used : units_[current_].also_uses) {
    const ParameterUnit& unit = units_[used];
    if (unit.part_of == current_ && unit.grid == grid && unit.trainable == trainable) return used;
  }
  const size_t unit = units_.size();
  units_[current_].also_uses.push_back(unit);
  ParameterUnit& added = units_.emplace_back();
  added.grid = grid;
  added.trainable = trainable;
  added.part_of = current_;
  added.users = 1;
  return unit;
}

Parameter& ParameterStore::Declare(ParameterSpec spec) {
  TRIMTAB_ASSERT(!placed_, "parameter {} declared after Place", spec.name);
  if (units_.empty()) BeginUnit();
  if (declared_.empty() || declared_.back().size() == kBlock) {
    declared_.emplace_back().reserve(kBlock);
  }
  spec.trainable = std::ranges::none_of(frozen_, [&](const std::string& pattern) {
    return MatchesPattern(pattern, spec.name.view());
  });
  const size_t unit = UnitOf(spec.grid, spec.trainable);
  Parameter& parameter = declared_.back().emplace_back(std::move(spec), unit);
  ordered_.push_back(&parameter);
  return parameter;
}

void ParameterStore::AlsoUse(const Parameter& parameter) {
  TRIMTAB_ASSERT(parameter.unit < current_, "{} is no parameter of an earlier unit",
                 parameter.spec.name);
  units_[current_].also_uses.push_back(parameter.unit);
  ++units_[parameter.unit].users;
}

void ParameterStore::SortByPlace() {
  // Counted, not compared: dry runs do it by the thousand.
  const auto key = [](const Parameter& each) { return kPlaces * each.unit + PlaceInUnit(each); };
  std::vector<size_t> ends(kPlaces * units_.size() + 1);
  for (const Parameter* parameter : ordered_) ++ends[key(*parameter) + 1];
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  for (size_t i = 0; i < units_.size(); ++i) {
    units_[i].first_parameter = ends[kPlaces * i];
    units_[i].end_parameter = ends[kPlaces * (i + 1)];
  }
  std::vector<Parameter*> sorted(ordered_.size());
  for (Parameter* parameter : ordered_) sorted[ends[key(*parameter)]++] = parameter;
  ordered_ = std::move(sorted);
}

void ParameterStore::Place(const ShardCounts& shards) {
  TRIMTAB_ASSERT(!placed_, "parameters are placed twice");
  placed_ = true;
  SortByPlace();
  for (ParameterUnit& unit : units_) {
    if (unit.trainable) PlaceUnit(unit, shards);
  }
  trained_numel_ = numel_;
  for (ParameterUnit& unit : units_) {
    if (!unit.trainable) PlaceUnit(unit, shards);
  }
}

void ParameterStore::PlaceUnit(ParameterUnit& unit, const ShardCounts& shards) {
  const auto skip_to = [this, &unit](int64_t end) {
    if (end == numel_) return;
    if (!unit.gaps.empty() && unit.gaps.back().end == numel_) {
      unit.gaps.back().end = end;
    } else {
      unit.gaps.push_back({numel_, end});
    }
    numel_ = end;
  };
  const int64_t begin = numel_;
  int64_t replicated_begin = begin;
  for (Parameter* parameter : ParametersOf(unit)) {
    parameter->offset = numel_;
    numel_ += parameter->numel();
    skip_to(RoundUp(numel_, kParameterAlignment));
    if (parameter->spec.tensor_parallel) replicated_begin = numel_;
    if (!parameter->spec.is_matrix) {
      if (unit.vectors.numel() == 0) unit.vectors.begin = parameter->offset;
      unit.vectors.end = numel_;
    }
  }
  unit.tensor_parallel = {begin, replicated_begin};
  unit.replicated = {replicated_begin, numel_};
  skip_to(begin + RoundUp(numel_ - begin, shards.of(unit.grid) * kParameterAlignment));
  unit.range = {begin, numel_};
}

void ParameterStore::BindWeights(size_t unit, const Tensor& values) {
  const ParameterUnit& bound = units_[unit];
  for (Parameter* each : ParametersOf(bound)) each->weight = ViewOf(values, bound.range, *each);
}

void ParameterStore::BindGradients(size_t unit, const Tensor& values) {
  const ParameterUnit& bound = units_[unit];
  for (Parameter* each : ParametersOf(bound)) each->gradient = ViewOf(values, bound.range, *each);
}

void ParameterStore::BindVectorGradients(size_t unit, const Tensor& values) {
  const ParameterUnit& bound = units_[unit];
  for (Parameter* each : ParametersOf(bound)) {
    if (!each->spec.is_matrix) each->gradient = ViewOf(values, bound.vectors, *each);
  }
}

void ParameterStore::Allocate(Device& device, DType weights, DType gradients) {
  Place({});
  buffers_.Allocate(device);
  Tensor all_weights = Tensor::Empty(device, {numel_}, weights, MemoryTag::kWeights);
  Tensor all_gradients = Tensor::Empty(device, {numel_}, gradients, MemoryTag::kGradients);
  Fill(all_weights, 0.0f);
  Fill(all_gradients, 0.0f);
  for (size_t i = 0; i < units_.size(); ++i) {
    const FlatRange& range = units_[i].range;
    BindWeights(i, all_weights.Slice(range.begin, {range.numel()}));
    BindGradients(i, all_gradients.Slice(range.begin, {range.numel()}));
  }
}

void ParameterStore::MakeInitialValues(uint64_t seed, int threads, const PutValues& put) const {
  std::vector<float> values;
  for (const Parameter* parameter : ordered_) {
    const ParameterSpec& spec = parameter->spec;
    const uint64_t key = Mix(seed ^ HashName(spec.name.view()));
    const int64_t columns = spec.columns;
    const int64_t rows_at_once = std::max<int64_t>(1, kChunk / columns);
    for (const RowSegment& segment : spec.partition.segments) {
      for (int64_t first = 0; first < segment.rows; first += rows_at_once) {
        const int64_t rows = std::min(rows_at_once, segment.rows - first);
        values.resize(static_cast<size_t>(rows * columns));
        ParallelFor(threads, rows, 1, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            FillRow(spec, key, segment.global_begin + first + row,
                    std::span(values).subspan(static_cast<size_t>(row * columns),
                                              static_cast<size_t>(columns)));
          }
        });
        put(*parameter, (segment.local_begin + first) * columns, values);
      }
    }
  }
}

void ParameterStore::Initialize(uint64_t seed) {
  const Device& device = ordered_.front()->weight.device();
  if (device.kind() == DeviceKind::kMeta) return;
  MakeInitialValues(seed, HostThreads(device),
                    [](const Parameter& parameter, int64_t begin, std::span<const float> values) {
                      Tensor target =
                          parameter.weight.Slice(begin, {static_cast<int64_t>(values.size())});
                      CopyFromHost(target, values);
                    });
}

int HostThreads(const Device& device) {
  if (device.kind() == DeviceKind::kCpu) return device.threads();
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

Partition RowBlocksPartition(const RowBlocks& block_rows, int64_t columns, int64_t tp,
                             int64_t tp_rank, int64_t copies) {
  Partition partition;
  partition.full_columns = columns;
  int64_t local = 0;
  for (const int64_t rows : block_rows) {
    const int64_t sharers = local == 0 ? 1 : copies;
    TRIMTAB_ASSERT(tp % sharers == 0 && rows % (tp / sharers) == 0,
                   "{} rows do not divide over tp={} / {}", rows, tp, sharers);
    const int64_t share = rows / (tp / sharers);
    partition.segments.push_back({local, partition.full_rows + tp_rank / sharers * share, share});
    partition.full_rows += rows;
    local += share;
  }
  return partition;
}

Partition ColumnPartition(int64_t rows, int64_t columns, int64_t tp, int64_t tp_rank) {
  TRIMTAB_ASSERT(columns % tp == 0, "{} columns do not divide over tp={}", columns, tp);
  Partition partition = WholePartition(rows, columns);
  partition.column_begin = tp_rank * (columns / tp);
  return partition;
}

Partition WholePartition(int64_t rows, int64_t columns) {
  Partition partition;
  partition.full_rows = rows;
  partition.full_columns = columns;
  partition.segments.push_back({0, 0, rows});
  return partition;
}

}  // namespace trimtab
