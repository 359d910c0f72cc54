#include "engine/ops/cpu/packed/packed_tiles.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/ops/cpu/packed/byte_tiles.h"
#include "engine/ops/cpu/packed/group_tiles.h"
#include "engine/ops/cpu/packed/tile_unit.h"

#ifdef TRIMTAB_HAS_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace trimtab {

#ifndef TRIMTAB_HAS_TILES

bool TakesTiles(WeightFormat) { return false; }

void MultiplyTiles(WeightFormat, const PanelRun&, const RowTiles&, int64_t, int64_t, float*) {
  TRIMTAB_ASSERT(false, "packed_gemm: no tiles on this processor");
}

#else

namespace {

// Steps of a panel that rows are multiplied by at a time: with as many columns of these, they stay
// in the second level of cache.
constexpr int64_t kBlockSteps = 32;

// Linux lends tiles to a process that asks for them.
bool AskForTiles() {
  if (__builtin_cpu_supports("amx-tile") == 0 || __builtin_cpu_supports("amx-bf16") == 0 ||
      __builtin_cpu_supports("amx-int8") == 0 || __builtin_cpu_supports("x86-64-v4") == 0) {
    return false;
  }
  constexpr int64_t kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int64_t kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Tiles are named by their numbers in the text of the program. All that one tile of numbers does is
// done at a time: loading it takes as long as one of these.
#define TRIMTAB_ADD_PAIRS(sums, pairs)  \
  _tile_loadd(7, pairs, kWordRowBytes); \
  _tile_dpbf16ps(sums, 4, 7);           \
  _tile_dpbf16ps(sums, 5, 7);           \
  _tile_dpbf16ps(sums, 6, 7)

// sums [height, kPanelRows of each panel], `floats` floats apart, = or += a tile of rows of x times
// some steps of one panel of bf16, or of two that share what is loaded of it.
template <int kPanels>
TRIMTAB_TILES void AddPairs(const TileSteps& t, float* sums, int64_t floats) {
  const int64_t stride = floats * static_cast<int64_t>(sizeof(float));
  FinishWrites();
  if (t.begin == 0) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kPanels == 2) {
      _tile_zero(2);
      _tile_zero(3);
    }
  } else {
    _tile_loadd(0, sums, stride);
    _tile_loadd(1, sums + kHalf, stride);
    if constexpr (kPanels == 2) {
      _tile_loadd(2, sums + 2 * kHalf, stride);
      _tile_loadd(3, sums + 3 * kHalf, stride);
    }
  }
  const char* x = t.x + t.begin * kTileParts * t.part_bytes;
  for (int64_t step = t.begin; step < t.end; ++step, x += kTileParts * t.part_bytes) {
    const char* words = t.words.At(t.panel, step);
    if (t.asks) t.words.AskAhead(t.panel, step, kPanels);
    _tile_loadd(4, x, kTileRowBytes);
    _tile_loadd(5, x + t.part_bytes, kTileRowBytes);
    _tile_loadd(6, x + 2 * t.part_bytes, kTileRowBytes);
    TRIMTAB_ADD_PAIRS(0, words);
    TRIMTAB_ADD_PAIRS(1, words + kHalfBytes);
    if constexpr (kPanels == 2) {
      const char* second = t.words.At(t.panel + 1, step);
      if (t.asks) t.words.AskAhead(t.panel + 1, step, kPanels);
      TRIMTAB_ADD_PAIRS(2, second);
      TRIMTAB_ADD_PAIRS(3, second + kHalfBytes);
    }
  }
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + kHalf, stride);
  if constexpr (kPanels == 2) {
    _tile_stored(2, sums + 2 * kHalf, stride);
    _tile_stored(3, sums + 3 * kHalf, stride);
  }
  FinishWrites();
}

#undef TRIMTAB_ADD_PAIRS

// With bf16.
void MultiplyPairTiles(const PanelRun& panels, const RowTiles& tiles, int64_t first, int64_t count,
                       float* results) {
  const int64_t width = panels.count * kPanelRows;
  const PanelSteps words(WeightFormat::kBf16, panels, tiles.columns);
  const TileShapes shapes(tiles.height);
  const int64_t most = count == 1 ? tiles.steps : kBlockSteps;
  for (int64_t begin = 0; begin < tiles.steps; begin += most) {
    for (int64_t panel = 0; panel < panels.count; panel += 2) {
      for (int64_t tile = 0; tile < count; ++tile) {
        const TileSteps steps = {.words = words,
                                 .panel = panel,
                                 .begin = begin,
                                 .end = std::min(begin + most, tiles.steps),
                                 .x = tiles.parts + (first + tile) * tiles.tile_bytes(),
                                 .part_bytes = tiles.part_bytes(),
                                 .asks = tile == 0};
        float* sums = results + tile * tiles.height * width + panel * kPanelRows;
        if (panel + 1 < panels.count) {
          AddPairs<2>(steps, sums, width);
        } else {
          AddPairs<1>(steps, sums, width);
        }
      }
    }
  }
}

}  // namespace

bool TakesTiles(WeightFormat format) {
  static const bool kHasTiles = AskForTiles();
  return kHasTiles && (format == WeightFormat::kBf16 || format == WeightFormat::kInt8 ||
                       format == WeightFormat::kInt4);
}

void MultiplyTiles(WeightFormat format, const PanelRun& panels, const RowTiles& tiles,
                   int64_t first, int64_t count, float* results) {
  TRIMTAB_ASSERT(panels.count <= kTilePanels && count * tiles.height <= kMostTileRows,
                 "packed_gemm: {} panels, {} tiles", panels.count, count);
  if (format == WeightFormat::kInt8) {
    MultiplyByteTiles(panels, tiles, first, count, results);
  } else if (format == WeightFormat::kInt4) {
    MultiplyGroupTiles(panels, tiles, first, count, results);
  } else {
    MultiplyPairTiles(panels, tiles, first, count, results);
  }
}

#endif

}  // namespace trimtab
