#include "engine/ops/packed_gemm_cpu.h"

#include <algorithm>

#include "engine/base/units.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/kernel.h"
#include "engine/ops/ordered_product_cpu.h"
#include "engine/ops/packed_factors_cpu.h"
#include "engine/ops/packed_panel_cpu.h"

namespace trimtab {
namespace {

// Columns of W that are multiplied at a time: with the rows that they multiply they stay in the
// first levels of cache. A multiple of kInt4Group.
constexpr int64_t kBlockColumns = 256;
static_assert(kBlockColumns % kInt4Group == 0);

// Rows of x that are multiplied by a block of W before the next one is unpacked.
constexpr int64_t kSharedRows = 512;

// Panels that such a row is multiplied by before the next row.
constexpr int64_t kRunPanels = 4;

TRIMTAB_CLONES void ScaleColumns(int64_t columns, const float* scales, float* block) {
  for (int64_t c = 0; c < columns; ++c) {
#pragma omp simd
    for (int64_t r = 0; r < kPanelRows; ++r) block[c * kPanelRows + r] *= scales[r];
  }
}

// y [rows, kPanelRows] *= scales [kPanelRows].
TRIMTAB_CLONES void ScaleResults(int64_t rows, const float* scales, float* y) {
  for (int64_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (int64_t i = 0; i < kPanelRows; ++i) y[row * kPanelRows + i] *= scales[i];
  }
}

TRIMTAB_CLONES void MultiplySpan(int64_t n, const float* x, const float* factors, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factors[i];
}

// Inputs as panels are multiplied by them: packed_panel_cpu.h.
struct Inputs {
  ConstRows rows;    // [m, in]
  ConstRows starts;  // [m, groups]; without data but of int4

  Inputs From(int64_t row) const {
    return {{rows.data + row * rows.stride, rows.stride},
            {starts.data != nullptr ? starts.data + row * starts.stride : nullptr, starts.stride}};
  }
};

// What panels make of some rows: sums of numbers times scales.
//
// Sums of numbers are multiplied by their scale once: over all columns, or with int4 over each
// group. Every sum is one chain in the order of the columns, for one row as for many.
class PanelProduct {
 public:
  explicit PanelProduct(const PackedMatrix& weights)
      : weights_(weights),
        panel_bytes_(weights.values.dim(2) * weights.values.dim(3) *
                     SizeOf(weights.values.dtype())) {}

  // y [m, out]: its columns of the panels [begin, end) of a matrix.
  void Run(int64_t matrix, int64_t begin, int64_t end, int64_t m, const Inputs& x,
           const float* bias, float* y) const {
    const int64_t step = m > kSingleRows ? 1 : kRunPanels;
    for (int64_t panel = begin; panel < end; panel += step) {
      const PanelRun panels = Panels(matrix, panel, std::min(step, end - panel));
      const int64_t first = panel * kPanelRows;
      const int64_t columns = std::min(panels.count * kPanelRows, weights_.out - first);
      const float* panel_bias = bias != nullptr ? bias + first : nullptr;
      for (int64_t row = 0; row < m; row += kSharedRows) {
        Rows(panels, std::min(kSharedRows, m - row), columns, x.From(row), panel_bias,
             y + row * weights_.out + first);
      }
    }
  }

 private:
  PanelRun Panels(int64_t matrix, int64_t panel, int64_t count) const {
    const int64_t index = matrix * weights_.panels() + panel;
    const float* scales = weights_.scales.defined()
                              ? weights_.scales.f32() + index * weights_.groups() * kPanelRows
                              : nullptr;
    return {static_cast<const char*>(weights_.values.raw()) + index * panel_bytes_, scales, count};
  }

  // At most kSharedRows of them.
  void Rows(const PanelRun& panels, int64_t m, int64_t columns, const Inputs& x, const float* bias,
            float* y) const {
    float results[kSharedRows * kPanelRows];
    static_assert(kSingleRows * kRunPanels <= kSharedRows);
    if (m > kSingleRows) {
      MultiplyRows(panels, m, x, results);
    } else {
      for (int64_t row = 0; row < m; ++row) {
        const Inputs one = x.From(row);
        MultiplyRow(weights_.format, panels, weights_.in, one.rows.data, one.starts.data,
                    results + row * panels.count * kPanelRows);
      }
    }
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t i = 0; i < columns; ++i) {
        y[row * weights_.out + i] =
            results[row * panels.count * kPanelRows + i] + (bias != nullptr ? bias[i] : 0.0f);
      }
    }
  }

  // What MultiplyRow makes of each of several rows and one panel: results [m, kPanelRows].
  void MultiplyRows(const PanelRun& panel, int64_t m, const Inputs& x, float* results) const {
    const bool by_group = weights_.format == WeightFormat::kInt4;
    std::fill_n(results, m * kPanelRows, 0.0f);
    for (int64_t begin = 0; begin < weights_.in; begin += kBlockColumns) {
      const int64_t count = std::min(kBlockColumns, weights_.in - begin);
      // fp32 too: read once in the order of memory, then again and again from the nearest cache.
      alignas(64) float block[kBlockColumns * kPanelRows];
      UnpackFactors(weights_.format, panel.numbers, begin, count, block);
      const ConstRows inputs = {x.rows.data + begin, x.rows.stride};
      const MemoryAhead ahead = WordsOf(panel, begin + count, kBlockColumns);
      if (by_group) {
        const int64_t group = begin / kInt4Group;
        OrderedGroupProduct(m, kPanelRows, count, kInt4Group, inputs, {block, kPanelRows},
                            panel.scales + group * kPanelRows,
                            {x.starts.data + group, x.starts.stride}, {results, kPanelRows}, ahead);
      } else {
        OrderedProduct(m, kPanelRows, count, inputs, {block, kPanelRows}, {results, kPanelRows},
                       ahead);
      }
    }
    if (panel.scales != nullptr && !by_group) ScaleResults(m, panel.scales, results);
  }

  // The numbers of columns [begin, begin + columns); behind the last one come those of the next
  // panel.
  MemoryAhead WordsOf(const PanelRun& panel, int64_t begin, int64_t columns) const {
    const auto bytes = [this](int64_t count) {
      return panel_bytes_ / weights_.values.dim(2) * CeilDiv(count, WordColumns(weights_.format));
    };
    return {static_cast<const char*>(panel.numbers) + bytes(begin), bytes(columns)};
  }

  const PackedMatrix& weights_;
  int64_t panel_bytes_;
};

// Of int4, sums that start with something.
int64_t StartsOf(const PackedMatrix& weights) {
  return weights.format == WeightFormat::kInt4 ? weights.groups() : 0;
}

// x as it is, or prepared in `scratch`.
Inputs InputsOf(int threads, const PackedMatrix& weights, int64_t rows, const float* x,
                float* scratch) {
  const int64_t in = weights.in;
  if (!PreparesInputs(weights.format)) return {{x, in}, {nullptr, 0}};
  const int64_t groups = StartsOf(weights);
  float* starts = scratch + rows * in;
  ParallelFor(threads, rows, RowGrain(in), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      PrepareInputs(weights.format, in, x + row * in, scratch + row * in, starts + row * groups);
    }
  });
  return {{scratch, in}, {groups > 0 ? starts : nullptr, groups}};
}

}  // namespace

void ScaleInputsCpu(int threads, int64_t rows, int64_t columns, const float* factors,
                    const float* x, float* y) {
  ParallelFor(threads, rows, RowGrain(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      MultiplySpan(columns, x + row * columns, factors, y + row * columns);
    }
  });
}

void UnpackColumns(WeightFormat format, const void* panel, const float* scales, int64_t first,
                   int64_t columns, float* block) {
  UnpackNumbers(format, panel, first, columns, block);
  if (scales == nullptr) return;
  const int64_t step = format == WeightFormat::kInt4 ? kInt4Group : columns;
  for (int64_t begin = 0; begin < columns; begin += step, scales += kPanelRows) {
    ScaleColumns(step, scales, block + begin * kPanelRows);
  }
}

int64_t PackedGemmScratchCpu(const PackedMatrix& weights, int64_t rows) {
  return PreparesInputs(weights.format) ? rows * (weights.in + StartsOf(weights)) : 0;
}

void PackedGemmCpu(int threads, const PackedMatrix& weights, GroupRows rows, const float* x,
                   const float* bias, float* y, float* scratch) {
  int64_t all = 0;
  for (const int64_t each : rows) all += each;
  const Inputs inputs = InputsOf(threads, weights, all, x, scratch);
  const PanelProduct product(weights);
  const int64_t work = weights.panels() * kPanelRows * weights.in * all;
  const auto workers = static_cast<int>(std::clamp<int64_t>(work / kSpanGrain, 1, threads));
  const int64_t panels = weights.panels();
  // As few at a time as are multiplied together: a worker that is held up leaves the rest to
  // others. Behind a panel the next one is asked of memory.
  const int64_t most = all > kSingleRows * std::ssize(rows) ? 1 : kRunPanels;
  const int64_t step = std::clamp<int64_t>(panels / (2 * workers), 1, most);
  ParallelForNeighbours(workers, CeilDiv(panels, step), [&](int64_t run, int) {
    const int64_t begin = run * step;
    const int64_t end = std::min(begin + step, panels);
    int64_t first = 0;
    for (size_t g = 0; g < rows.size(); first += rows[g++]) {
      if (rows[g] == 0) continue;
      product.Run(static_cast<int64_t>(g), begin, end, rows[g], inputs.From(first), bias,
                  y + first * weights.out);
    }
  });
}

}  // namespace trimtab
