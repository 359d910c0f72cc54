#include "engine/ops/packed_tiles_cpu.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/ops/spread_panel_cpu.h"

#if defined(__x86_64__) && defined(__linux__)
#define TRIMTAB_HAS_TILES 1
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TRIMTAB_TILES [[gnu::target("avx512f,avx512bw,avx512vl,amx-tile,amx-bf16")]]
#endif

namespace trimtab {
namespace {}  // namespace

#ifndef TRIMTAB_HAS_TILES

bool TakesTiles(WeightFormat) { return false; }

void MultiplyTiles(WeightFormat, const PanelRun&, const RowTiles&, int64_t, int64_t, float*) {
  TRIMTAB_ASSERT(false, "packed_gemm: no tiles on this processor");
}

#else

namespace {

// Columns of a panel that are spread at a time: those of four panels stay in the second level of
// cache.
constexpr int64_t kSpreadColumns = 256;

// Of a panel's pairs.
constexpr int64_t kStepBytes = kTileColumns / 2 * kWordRowBytes;
constexpr int64_t kHalf = 16;  // outputs of a tile
constexpr int64_t kHalfBytes = kHalf * 4;
constexpr int64_t kTileRowBytes = 64;
constexpr int64_t kLineBytes = 64;

// Linux lends tiles to a process that asks for them.
bool AskForTiles() {
  if (__builtin_cpu_supports("amx-tile") == 0 || __builtin_cpu_supports("amx-bf16") == 0 ||
      __builtin_cpu_supports("x86-64-v4") == 0) {
    return false;
  }
  constexpr int64_t kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int64_t kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Neither loading tiles nor configuring them tells the compiler what memory it reads.
inline void FinishWrites() { asm volatile("" ::: "memory"); }

// The shapes of tiles while it lives: 0 to 3 are sums, 4 to 6 the parts of rows of x, 7 numbers.
class TileShapes {
 public:
  TRIMTAB_TILES explicit TileShapes(int64_t height) {
    struct {
      uint8_t palette = 1;
      uint8_t first_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shapes;
    static_assert(sizeof(shapes) == 64);
    for (size_t tile = 0; tile < 8; ++tile) {
      shapes.row_bytes[tile] = kTileRowBytes;
      shapes.rows[tile] = static_cast<uint8_t>(tile == 7 ? kTileColumns / 2 : height);
    }
    FinishWrites();
    _tile_loadconfig(&shapes);
  }
  TRIMTAB_TILES ~TileShapes() { _tile_release(); }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;
};

// Asks for bytes [begin, begin + bytes) of what may be null or end before.
inline void AskFor(const void* memory, int64_t begin, int64_t bytes) {
  if (memory == nullptr) return;
  const char* lines = static_cast<const char*>(memory) + begin;
  for (int64_t i = 0; i < bytes; i += kLineBytes) __builtin_prefetch(lines + i, 0, 2);
}

// A tile of rows of x times some steps of spread panels.
struct TileSteps {
  int64_t height;
  int64_t steps;
  const uint16_t* x;     // [steps, kTileParts, height, kTileColumns]
  const char* pairs[2];  // of one panel or two, [steps, 16, kWordRowBytes]
  const char* ahead[2];  // asked of memory meanwhile; null where nothing is
  int64_t ahead_bytes;   // of each, with each step
  bool first;            // Sums begin here; otherwise with what `sums` holds.
  float* sums;           // [height, stride]: kPanelRows for each panel
  int64_t stride;        // in floats
};

TRIMTAB_TILES inline void LoadParts(const uint16_t* x, int64_t height) {
  _tile_loadd(4, x, kTileRowBytes);
  _tile_loadd(5, x + height * kTileColumns, kTileRowBytes);
  _tile_loadd(6, x + 2 * height * kTileColumns, kTileRowBytes);
}

// Tiles are named by their numbers in the text of the program. All that one tile of numbers does is
// done at a time: loading it takes as long as one of these.
#define TRIMTAB_ADD_TILE(sums, pairs)   \
  _tile_loadd(7, pairs, kWordRowBytes); \
  _tile_dpbf16ps(sums, 4, 7);           \
  _tile_dpbf16ps(sums, 5, 7);           \
  _tile_dpbf16ps(sums, 6, 7)

template <int kPanels>
TRIMTAB_TILES void AddSteps(const TileSteps& t) {
  const int64_t stride = t.stride * 4;
  FinishWrites();
  if (t.first) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kPanels == 2) {
      _tile_zero(2);
      _tile_zero(3);
    }
  } else {
    _tile_loadd(0, t.sums, stride);
    _tile_loadd(1, t.sums + kHalf, stride);
    if constexpr (kPanels == 2) {
      _tile_loadd(2, t.sums + 2 * kHalf, stride);
      _tile_loadd(3, t.sums + 3 * kHalf, stride);
    }
  }
  const uint16_t* x = t.x;
  for (int64_t step = 0; step < t.steps; ++step) {
    for (int panel = 0; panel < kPanels; ++panel) {
      AskFor(t.ahead[panel], step * t.ahead_bytes, t.ahead_bytes);
    }
    LoadParts(x, t.height);
    x += kTileParts * t.height * kTileColumns;
    const int64_t at = step * kStepBytes;
    TRIMTAB_ADD_TILE(0, t.pairs[0] + at);
    TRIMTAB_ADD_TILE(1, t.pairs[0] + at + kHalfBytes);
    if constexpr (kPanels == 2) {
      TRIMTAB_ADD_TILE(2, t.pairs[1] + at);
      TRIMTAB_ADD_TILE(3, t.pairs[1] + at + kHalfBytes);
    }
  }
  _tile_stored(0, t.sums, stride);
  _tile_stored(1, t.sums + kHalf, stride);
  if constexpr (kPanels == 2) {
    _tile_stored(2, t.sums + 2 * kHalf, stride);
    _tile_stored(3, t.sums + 3 * kHalf, stride);
  }
  FinishWrites();
}

// sums [height, kHalf], `stride` floats apart, = or += a tile of them times their scales.
TRIMTAB_TILES inline void AddScaled(int64_t height, const float* tile, __m512 scales, bool first,
                                    float* sums, int64_t stride) {
  for (int64_t row = 0; row < height; ++row, tile += kHalf, sums += stride) {
    const __m512 before = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sums);
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_load_ps(tile), scales, before));
  }
}

// Of int4, whose steps are groups with scales of their own, and one panel. The sums of one step are
// scaled while those of the next one are made.
TRIMTAB_TILES void AddGroups(const TileSteps& t, const float* scales) {
  static_assert(kInt4Group == kTileColumns);
  alignas(64) float tiles[2][kMostHeight * kHalf];
  const uint16_t* x = t.x;
  for (int64_t step = 0; step <= t.steps; ++step) {
    FinishWrites();
    if (step < t.steps) {
      AskFor(t.ahead[0], step * t.ahead_bytes, t.ahead_bytes);
      const char* pairs = t.pairs[0] + step * kStepBytes;
      LoadParts(x, t.height);
      x += kTileParts * t.height * kTileColumns;
      if (step % 2 == 0) {
        _tile_zero(0);
        _tile_zero(1);
        TRIMTAB_ADD_TILE(0, pairs);
        TRIMTAB_ADD_TILE(1, pairs + kHalfBytes);
      } else {
        _tile_zero(2);
        _tile_zero(3);
        TRIMTAB_ADD_TILE(2, pairs);
        TRIMTAB_ADD_TILE(3, pairs + kHalfBytes);
      }
    }
    if (step == 0) continue;
    if (step % 2 == 1) {
      _tile_stored(0, tiles[0], kTileRowBytes);
      _tile_stored(1, tiles[1], kTileRowBytes);
    } else {
      _tile_stored(2, tiles[0], kTileRowBytes);
      _tile_stored(3, tiles[1], kTileRowBytes);
    }
    FinishWrites();
    for (int64_t half = 0; half < 2; ++half, scales += kHalf) {
      AddScaled(t.height, tiles[half], _mm512_loadu_ps(scales), t.first && step == 1,
                t.sums + half * kHalf, t.stride);
    }
  }
}

#undef TRIMTAB_ADD_TILE

// Panels that rows are multiplied by.
class TiledPanels {
 public:
  TiledPanels(WeightFormat format, const PanelRun& panels, int64_t columns)
      : format_(format),
        panels_(panels),
        columns_(columns),
        panel_bytes_(BytesOf(columns)),
        groups_(ScalesOf(format, columns)) {}

  void Multiply(const RowTiles& tiles, int64_t first, int64_t count, float* results) const {
    const int64_t width = panels_.count * kPanelRows;
    const TileShapes shapes(tiles.height);
    for (int64_t begin = 0; begin < columns_; begin += kSpreadColumns) {
      const Spread spread(*this, begin);
      TileSteps t = {
          .height = tiles.height,
          .steps = StepsOf(std::min(kSpreadColumns, columns_ - begin)),
          .x = tiles.parts + first * tiles.tile_size() + begin * kTileParts * tiles.height,
          .pairs = {},
          .ahead = {},
          .ahead_bytes = BytesOf(kTileColumns),
          .first = begin == 0,
          .sums = results,
          .stride = width};
      for (int64_t tile = 0; tile < count; ++tile) {
        MultiplyTile(spread, tile == 0, t);
        t.x += tiles.tile_size();
        t.sums += tiles.height * width;
      }
    }
  }

 private:
  // Some columns of all panels as pairs.
  class Spread {
   public:
    Spread(const TiledPanels& all, int64_t first_column) : begin(first_column) {
      const int64_t columns = std::min(kSpreadColumns, all.columns_ - begin);
      // Whole pairs of bf16 are multiplied where they lie.
      const bool lies = all.format_ == WeightFormat::kBf16 && columns % kTileColumns == 0;
      for (int64_t panel = 0; panel < all.panels_.count; ++panel) {
        const char* words = all.WordsAt(panel, begin);
        pairs[panel] = lies ? words : memory_[panel];
        if (!lies) SpreadPanel(all.format_, words, columns, memory_[panel]);
        // They are multiplied by soon, and are short runs that caches do not foresee.
        if (all.format_ == WeightFormat::kInt4) {
          AskFor(all.ScalesAt(panel, begin), 0, columns / kInt4Group * kWordRowBytes);
        }
      }
    }

    int64_t begin;
    const char* pairs[kTilePanels];

   private:
    alignas(64) char memory_[kTilePanels][kSpreadColumns / kTileColumns * kStepBytes];
  };

  void MultiplyTile(const Spread& spread, bool asks, TileSteps t) const {
    const int64_t most = format_ == WeightFormat::kInt4 ? 1 : 2;
    for (int64_t panel = 0, together = 0; panel < panels_.count; panel += together) {
      together = std::min(most, panels_.count - panel);
      for (int64_t i = 0; i < together; ++i) {
        t.pairs[i] = spread.pairs[panel + i];
        if (asks) t.ahead[i] = NextWords(panel + i, spread.begin);
      }
      if (format_ == WeightFormat::kInt4) {
        AddGroups(t, ScalesAt(panel, spread.begin));
      } else if (together == 2) {
        AddSteps<2>(t);
      } else {
        AddSteps<1>(t);
      }
      t.sums += together * kPanelRows;
    }
  }

  int64_t BytesOf(int64_t columns) const {
    return CeilDiv(columns, WordColumns(format_)) * kWordRowBytes;
  }

  // The numbers of panel `panel` from column `begin` on.
  const char* WordsAt(int64_t panel, int64_t begin) const {
    return static_cast<const char*>(panels_.numbers) + panel * panel_bytes_ + BytesOf(begin);
  }
  // Those that are read after them: of further columns, or of the next run.
  const char* NextWords(int64_t panel, int64_t begin) const {
    const int64_t next = begin + kSpreadColumns;
    return next < columns_ ? WordsAt(panel, next) : WordsAt(panel + panels_.count, 0);
  }
  const float* ScalesAt(int64_t panel, int64_t begin) const {
    return panels_.scales + (panel * groups_ + begin / kInt4Group) * kPanelRows;
  }

  WeightFormat format_;
  const PanelRun& panels_;
  int64_t columns_;
  int64_t panel_bytes_;
  int64_t groups_;
};

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
  TiledPanels(format, panels, tiles.columns).Multiply(tiles, first, count, results);
}

#endif

}  // namespace trimtab
