#include "engine/layers/parameter.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "engine/base/units.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/elementwise.h"

namespace trimtab {
namespace {

/// SplitMix64 (Steele et al., OOPSLA 2014): a well-mixed 64-bit value for each counter.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

uint64_t HashName(const std::string& name) {
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

/// Initial values are made on the host, by this many threads.
int HostThreads(const Device& device) {
  if (device.kind() == DeviceKind::kCpu) return device.threads();
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

Parameter& ParameterStore::Declare(ParameterSpec spec) {
  TRIMTAB_ASSERT(!weights_.defined(), "parameter {} declared after Allocate", spec.name);
  declared_.push_back(std::make_unique<Parameter>());
  declared_.back()->spec = std::move(spec);
  return *declared_.back();
}

void ParameterStore::Place() {
  const auto place = [this](bool tensor_parallel, bool duplicate) {
    for (const auto& parameter : declared_) {
      const ParameterSpec& spec = parameter->spec;
      if (spec.tensor_parallel != tensor_parallel || spec.duplicate != duplicate) continue;
      parameter->offset = numel_;
      numel_ += RoundUp(parameter->numel(), kParameterAlignment);
      ordered_.push_back(parameter.get());
    }
    return numel_;
  };
  own_tensor_parallel_numel_ = place(/*tensor_parallel=*/true, /*duplicate=*/false);
  tensor_parallel_numel_ = place(/*tensor_parallel=*/true, /*duplicate=*/true);
  place(/*tensor_parallel=*/false, /*duplicate=*/false);
}

void ParameterStore::Allocate(Device& device, DType weights, DType gradients, int64_t shards) {
  Place();
  const Shape flat = {RoundUp(numel_, shards * kParameterAlignment)};
  weights_ = Tensor::Empty(device, flat, weights, MemoryTag::kWeights);
  gradients_ = Tensor::Empty(device, flat, gradients, MemoryTag::kGradients);
  for (Parameter* parameter : ordered_) {
    const ParameterSpec& spec = parameter->spec;
    const Shape shape = spec.is_matrix ? Shape{spec.rows, spec.columns} : Shape{spec.rows};
    parameter->weight = weights_.Slice(parameter->offset, shape);
    parameter->gradient = gradients_.Slice(parameter->offset, shape);
  }
}

void ParameterStore::Initialize(uint64_t seed, const PutValues& put) {
  if (weights_.device().kind() == DeviceKind::kMeta) return;
  Fill(weights_, 0.0f);
  Fill(gradients_, 0.0f);
  const PutValues put_weights = [this](int64_t begin, std::span<const float> values) {
    Tensor target = weights_.Slice(begin, {static_cast<int64_t>(values.size())});
    CopyFromHost(target, values);
  };
  const PutValues& receive = put ? put : put_weights;
  const int threads = HostThreads(weights_.device());
  std::vector<float> values;
  for (const Parameter* parameter : ordered_) {
    const ParameterSpec& spec = parameter->spec;
    const uint64_t key = Mix(seed ^ HashName(spec.name));
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
        receive(parameter->offset + (segment.local_begin + first) * columns, values);
      }
    }
  }
}

Partition RowBlocksPartition(const std::vector<int64_t>& block_rows, int64_t columns, int64_t tp,
                             int64_t tp_rank) {
  Partition partition;
  partition.full_columns = columns;
  int64_t local = 0;
  for (const int64_t rows : block_rows) {
    TRIMTAB_ASSERT(rows % tp == 0, "{} rows do not divide over tp={}", rows, tp);
    const int64_t share = rows / tp;
    partition.segments.push_back({local, partition.full_rows + tp_rank * share, share});
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
  partition.segments = {{0, 0, rows}};
  return partition;
}

}  // namespace trimtab
