#include "engine/ops/cpu/packed/packed_gemm.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/base/units.h"
#include "engine/device/cpu/parallel.h"
#include "engine/ops/cpu/packed/block_product.h"
#include "engine/ops/cpu/packed/packed_factors.h"
#include "engine/ops/cpu/packed/packed_panel.h"
#include "engine/ops/cpu/packed/packed_tiles.h"
#include "engine/ops/kernel.h"

namespace trimtab {
namespace {

// Rows of x that are multiplied by a block of W before the next one is unpacked.
constexpr int64_t kSharedRows = 512;

// Panels that are multiplied at a time by rows one by one, or by tiles.
constexpr int64_t kRunPanels = 4;
static_assert(kRunPanels <= kTilePanels);

// Results of some rows and panels, before they go where they belong.
constexpr int64_t kResults = kSharedRows * kPanelRows;
static_assert(kSingleRows * kRunPanels * kPanelRows <= kResults &&
              kMostTileRows * kRunPanels * kPanelRows <= kResults);

TRIMTAB_CLONES void ScaleColumns(int64_t columns, const float* scales, float* block) {
  for (int64_t c = 0; c < columns; ++c) {
#pragma omp simd
    for (int64_t r = 0; r < kPanelRows; ++r) block[c * kPanelRows + r] *= scales[r];
  }
}

// y [rows, width] *= scales [width].
TRIMTAB_CLONES void ScaleResults(int64_t rows, int64_t width, const float* scales, float* y) {
  for (int64_t row = 0; row < rows; ++row, y += width) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) y[i] *= scales[i];
  }
}

TRIMTAB_CLONES void MultiplySpan(int64_t n, const float* x, const float* factors, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factors[i];
}

// y [rows, columns], rows `stride` floats apart, = results [rows, width] + bias [columns], which
// may be null.
TRIMTAB_CLONES void AddBias(int64_t rows, int64_t columns, const float* results, int64_t width,
                            const float* bias, float* y, int64_t stride) {
  for (int64_t row = 0; row < rows; ++row, results += width, y += stride) {
    if (bias == nullptr) {
      std::memcpy(y, results, static_cast<size_t>(columns) * sizeof(float));
      continue;
    }
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) y[i] = results[i] + bias[i];
  }
}

bool MultipliesOneByOne(int64_t rows) { return rows <= kSingleRows; }
bool UsesTiles(Multiplier multiplier, int64_t rows) {
  return multiplier == Multiplier::kTiles && !MultipliesOneByOne(rows);
}

// The rows of one group as panels are multiplied by them (packed_factors_cpu.h). Rows that are
// multiplied one by one lie one after the other; of more of them, so do blocks of kBlockColumns
// columns, each [rows, kBlockColumns]: what is read together lies together. Where tiles multiply,
// only these are there.
struct Inputs {
  const float* data;
  const float* starts;  // likewise, kBlockGroups for kBlockColumns; null but of int4
  int64_t row_stride;
  int64_t block_stride;
  RowTiles tiles;

  bool tiled() const { return tiles.parts != nullptr; }
  const float* At(int64_t row, int64_t block) const {
    return data + row * row_stride + block * block_stride;
  }
  const float* StartsAt(int64_t row, int64_t block) const {
    if (starts == nullptr) return nullptr;
    return starts + (row * row_stride + block * block_stride) / kInt4Group;
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
    if (MultipliesOneByOne(m)) AskForInputs(m, x);
    const int64_t step = MultipliesOneByOne(m) || x.tiled() ? kRunPanels : 1;
    const int64_t most_rows =
        x.tiled() ? kMostTileRows / x.tiles.height * x.tiles.height : kSharedRows;
    for (int64_t panel = begin; panel < end; panel += step) {
      const PanelRun panels = Panels(matrix, panel, std::min(step, end - panel));
      const int64_t first = panel * kPanelRows;
      const int64_t columns = std::min(panels.count * kPanelRows, weights_.out - first);
      const float* panel_bias = bias != nullptr ? bias + first : nullptr;
      for (int64_t row = 0; row < m; row += most_rows) {
        Rows(panels, std::min(most_rows, m - row), columns, x, row, panel_bias,
             y + row * weights_.out + first);
      }
    }
  }

 private:
  // Another worker may have written them just now: line after line, as a product comes to them,
  // each would take as long as many panels' words.
  void AskForInputs(int64_t m, const Inputs& x) const {
    constexpr int64_t kLineFloats = 16;
    for (int64_t row = 0; row < m; ++row) {
      const float* data = x.At(row, 0);
      for (int64_t i = 0; i < weights_.in; i += kLineFloats) __builtin_prefetch(data + i);
      if (x.starts == nullptr) continue;
      const float* starts = x.StartsAt(row, 0);
      for (int64_t i = 0; i < weights_.in / kInt4Group; i += kLineFloats) {
        __builtin_prefetch(starts + i);
      }
    }
  }

  bool ByGroup() const { return weights_.format == WeightFormat::kInt4; }

  PanelRun Panels(int64_t matrix, int64_t panel, int64_t count) const {
    const int64_t index = matrix * weights_.panels() + panel;
    const float* scales = weights_.scales.defined()
                              ? weights_.scales.f32() + index * weights_.groups() * kPanelRows
                              : nullptr;
    return {static_cast<const char*>(weights_.values.raw()) + index * panel_bytes_, scales, count};
  }

  // Rows [first, first + m), as many as there are results for.
  void Rows(const PanelRun& panels, int64_t m, int64_t columns, const Inputs& x, int64_t first,
            const float* bias, float* y) const {
    alignas(64) float results[kResults];
    const int64_t width = panels.count * kPanelRows;
    if (x.tiled()) {
      MultiplyTiles(weights_.format, panels, x.tiles, first / x.tiles.height,
                    CeilDiv(m, x.tiles.height), results);
      if (panels.scales != nullptr && !ByGroup()) ScaleResults(m, width, panels.scales, results);
    } else if (x.block_stride == kBlockColumns) {
      for (int64_t row = 0; row < m; ++row) {
        MultiplyRow(weights_.format, panels, weights_.in, x.At(first + row, 0),
                    x.StartsAt(first + row, 0), results + row * width);
      }
    } else {
      MultiplyRows(panels, m, x, first, results, y);
    }
    AddBias(m, columns, results, width, bias, y, weights_.out);
  }

  // What MultiplyRow makes of each of several rows and one panel: results [m, kPanelRows], which go
  // to `y`.
  void MultiplyRows(const PanelRun& panel, int64_t m, const Inputs& x, int64_t first,
                    float* results, float* y) const {
    for (int64_t begin = 0; begin < weights_.in; begin += kBlockColumns) {
      const int64_t count = std::min(kBlockColumns, weights_.in - begin);
      alignas(64) float block[kBlockColumns * kPanelRows];
      const float* factors = block;
      if (weights_.format == WeightFormat::kF32) {
        factors = static_cast<const float*>(panel.numbers) + begin * kPanelRows;
      } else {
        UnpackFactors(weights_.format, panel.numbers, begin, count, block);
      }
      MultiplyBlock({.rows = m,
                     .columns = count,
                     .x = x.At(first, begin / kBlockColumns),
                     .factors = factors,
                     .first = begin == 0,
                     .sums = results,
                     .scales = ByGroup() ? panel.scales + begin / kInt4Group * kPanelRows : nullptr,
                     .starts = x.StartsAt(first, begin / kBlockColumns),
                     .ahead = WordsOf(panel, begin + count, kBlockColumns),
                     .written = begin + count == weights_.in ? y : nullptr,
                     .written_stride = weights_.out});
    }
    if (panel.scales != nullptr && !ByGroup()) {
      ScaleResults(m, kPanelRows, panel.scales, results);
    }
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

int64_t PaddedColumns(const PackedMatrix& weights) { return RoundUp(weights.in, kBlockColumns); }

// Of int4, what sums start with, a row.
int64_t StartsOf(const PackedMatrix& weights) {
  return weights.format == WeightFormat::kInt4 ? PaddedColumns(weights) / kInt4Group : 0;
}

// Floats of a group of rows; a whole number of lines of memory.
int64_t ScratchOf(Multiplier multiplier, const PackedMatrix& weights, int64_t rows) {
  constexpr int64_t kLine = 16;
  if (rows == 0) return 0;
  if (UsesTiles(multiplier, rows)) {
    return RoundUp(FloatsOf(weights.format, CutRows(weights.format, rows, weights.in)), kLine);
  }
  if (MultipliesOneByOne(rows) && !PreparesInputs(weights.format)) return 0;
  return RoundUp(rows * (PaddedColumns(weights) + StartsOf(weights)), kLine);
}

// x [rows, in] of one group as tiles in `scratch`.
Inputs TiledInputs(int threads, const PackedMatrix& weights, int64_t rows, const float* x,
                   float* scratch) {
  RowTiles tiles = CutRows(weights.format, rows, weights.in);
  PlaceTiles(weights.format, scratch, tiles);
  // A column in three parts is the work of some.
  ParallelFor(threads, rows, RowGrain(4 * weights.in), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      SplitRow(weights.format, x + row * weights.in, row, tiles);
    }
  });
  ClearRows(rows, tiles);
  return {.data = nullptr, .starts = nullptr, .row_stride = 0, .block_stride = 0, .tiles = tiles};
}

// x [rows, in] of one group as it is, or prepared in `scratch`.
Inputs InputsOf(Multiplier multiplier, int threads, const PackedMatrix& weights, int64_t rows,
                const float* x, float* scratch) {
  if (UsesTiles(multiplier, rows)) {
    return TiledInputs(threads, weights, rows, x, scratch);
  }
  const int64_t in = weights.in;
  const int64_t padded = PaddedColumns(weights);
  const bool one_by_one = MultipliesOneByOne(rows);
  if (one_by_one && !PreparesInputs(weights.format)) {
    return {
        .data = x, .starts = nullptr, .row_stride = in, .block_stride = kBlockColumns, .tiles = {}};
  }
  float* starts = scratch + rows * padded;  // of int4
  const Inputs inputs = {.data = scratch,
                         .starts = StartsOf(weights) > 0 ? starts : nullptr,
                         .row_stride = one_by_one ? padded : kBlockColumns,
                         .block_stride = kBlockColumns * (one_by_one ? 1 : rows),
                         .tiles = {}};
  ParallelFor(threads, rows, RowGrain(in), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t column = 0; column < in; column += kBlockColumns) {
        const int64_t at = row * inputs.row_stride + column / kBlockColumns * inputs.block_stride;
        PrepareInputs(weights.format, std::min(kBlockColumns, in - column), x + row * in + column,
                      scratch + at, starts + at / kInt4Group);
      }
    }
  });
  return inputs;
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

Multiplier MultiplierOf(WeightFormat format) {
  return TakesTiles(format) ? Multiplier::kTiles : Multiplier::kVectors;
}

int64_t PackedGemmScratchCpu(Multiplier multiplier, const PackedMatrix& weights, GroupRows rows) {
  constexpr int64_t kLine = 16;
  int64_t floats = kLine;  // so that it may begin with a line
  for (const int64_t each : rows) floats += ScratchOf(multiplier, weights, each);
  return floats == kLine ? 0 : floats;
}

void PackedGemmCpu(Multiplier multiplier, int threads, const PackedMatrix& weights, GroupRows rows,
                   const float* x, const float* bias, float* y, float* scratch) {
  constexpr uintptr_t kLineBytes = 64;
  scratch +=
      (kLineBytes - reinterpret_cast<uintptr_t>(scratch) % kLineBytes) % kLineBytes / sizeof(float);
  int64_t all = 0;
  std::vector<Inputs> inputs;
  for (const int64_t each : rows) {
    inputs.push_back(InputsOf(multiplier, threads, weights, each, x + all * weights.in, scratch));
    scratch += ScratchOf(multiplier, weights, each);
    all += each;
  }
  const PanelProduct product(weights);
  const int64_t work = weights.panels() * kPanelRows * weights.in * all;
  const auto workers = static_cast<int>(std::clamp<int64_t>(work / kSpanGrain, 1, threads));
  const int64_t panels = weights.panels();
  // As few at a time as are multiplied together: a worker that is held up leaves the rest to
  // others. Behind a panel the next one is asked of memory.
  const bool many = multiplier == Multiplier::kVectors && all > kSingleRows * std::ssize(rows);
  const int64_t most = many ? 1 : kRunPanels;
  const int64_t step = std::clamp<int64_t>(panels / (2 * workers), 1, most);
  ParallelForNeighbours(workers, CeilDiv(panels, step), [&](int64_t run, int) {
    const int64_t begin = run * step;
    const int64_t end = std::min(begin + step, panels);
    float* to = y;
    for (size_t g = 0; g < rows.size(); to += rows[g++] * weights.out) {
      if (rows[g] == 0) continue;
      product.Run(static_cast<int64_t>(g), begin, end, rows[g], inputs[g], bias, to);
    }
  });
}

}  // namespace trimtab
