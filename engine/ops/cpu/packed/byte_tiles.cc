#include "engine/ops/cpu/packed/byte_tiles.h"

#include <algorithm>

#include "engine/ops/cpu/packed/tile_unit.h"

namespace trimtab {

#ifdef TRIMTAB_HAS_TILES

namespace {

// Columns that are summed in 32 bits, which have room for 2^16 of them; then their sums are added
// up in fp32. So many of the rows that are multiplied at a time stay in the second level of cache.
constexpr int64_t kSumColumns = 4096;
constexpr int64_t kSumSteps = kSumColumns / kTileRowBytes;
static_assert(kSumColumns * 255 * 128 < int64_t{1} << 31);

// Tiles are named by their numbers in the text of the program.
#define TRIMTAB_ADD_BYTES(add, sums, x) \
  _tile_loadd(6, x, kTileRowBytes);     \
  add(sums, 6, 7)

// sums [6, height, kHalf]: of each half of the panel, those of the three bytes.
TRIMTAB_TILES void SumBytes(const TileSteps& t, int32_t* sums) {
  FinishWrites();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  const char* x = t.x + t.begin * kTileParts * t.part_bytes;
  for (int64_t step = t.begin; step < t.end; ++step, x += kTileParts * t.part_bytes) {
    const char* words = t.words.At(t.panel, step);
    if (t.asks) t.words.AskAhead(t.panel, step, 1);
    const char* middle = x + t.part_bytes;
    const char* last = middle + t.part_bytes;
    _tile_loadd(7, words, kWordRowBytes);
    TRIMTAB_ADD_BYTES(_tile_dpbssd, 0, x);
    TRIMTAB_ADD_BYTES(_tile_dpbusd, 1, middle);
    TRIMTAB_ADD_BYTES(_tile_dpbusd, 2, last);
    _tile_loadd(7, words + kHalfBytes, kWordRowBytes);
    _tile_dpbusd(5, 6, 7);
    TRIMTAB_ADD_BYTES(_tile_dpbusd, 4, middle);
    TRIMTAB_ADD_BYTES(_tile_dpbssd, 3, x);
  }
  const int64_t size = t.part_bytes / kTileRowBytes * kHalf;
  _tile_stored(0, sums, kHalfBytes);
  _tile_stored(1, sums + size, kHalfBytes);
  _tile_stored(2, sums + 2 * size, kHalfBytes);
  _tile_stored(3, sums + 3 * size, kHalfBytes);
  _tile_stored(4, sums + 4 * size, kHalfBytes);
  _tile_stored(5, sums + 5 * size, kHalfBytes);
  FinishWrites();
}

#undef TRIMTAB_ADD_BYTES

// A register as numbers.
using I32 [[gnu::vector_size(64)]] = int32_t;
using F32 [[gnu::vector_size(64)]] = float;
TRIMTAB_TILES inline F32 FloatsAt(const int32_t* sums) {
  return __builtin_convertvector((I32)_mm512_load_si512(sums), F32);
}

// results [height, kHalf], `stride` floats apart, = or += sums [3, height, kHalf] in the units of
// their rows.
TRIMTAB_TILES void AddUnits(int64_t height, const int32_t* sums, const float* units, bool first,
                            float* results, int64_t stride) {
  const int64_t size = height * kHalf;
  for (int64_t row = 0; row < height; ++row, sums += kHalf, results += stride) {
    const F32 upper = FloatsAt(sums) * 0x1p16f;
    const F32 lower = FloatsAt(sums + size) * 0x1p8f + FloatsAt(sums + 2 * size);
    F32 sum = (upper + lower) * units[row];
    if (!first) sum += (F32)_mm512_loadu_ps(results);
    _mm512_storeu_ps(results, (__m512)sum);
  }
}

}  // namespace

void MultiplyByteTiles(const PanelRun& panels, const RowTiles& tiles, int64_t first, int64_t count,
                       float* results) {
  const int64_t width = panels.count * kPanelRows;
  const PanelSteps words(WeightFormat::kInt8, panels, tiles.columns);
  const TileShapes shapes(tiles.height);
  alignas(64) int32_t sums[6 * kMostHeight * kHalf];
  for (int64_t begin = 0; begin < tiles.steps; begin += kSumSteps) {
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      for (int64_t tile = 0; tile < count; ++tile) {
        SumBytes({.words = words,
                  .panel = panel,
                  .begin = begin,
                  .end = std::min(begin + kSumSteps, tiles.steps),
                  .x = tiles.parts + (first + tile) * tiles.tile_bytes(),
                  .part_bytes = tiles.part_bytes(),
                  .asks = tile == 0},
                 sums);
        for (int64_t half = 0; half < 2; ++half) {
          AddUnits(tiles.height, sums + half * 3 * tiles.height * kHalf,
                   tiles.units + (first + tile) * tiles.height, begin == 0,
                   results + tile * tiles.height * width + panel * kPanelRows + half * kHalf,
                   width);
        }
      }
    }
  }
}

#else

void MultiplyByteTiles(const PanelRun&, const RowTiles&, int64_t, int64_t, float*) {
  TRIMTAB_ASSERT(false, "packed_gemm: no tiles on this processor");
}

#endif

}  // namespace trimtab
