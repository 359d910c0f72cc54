// The matrix unit that some x86 cores have (AMX), as packed_tiles.h multiplies by it.
//
// For its sources alone, and for x86-64 alone. Tiles are named by their numbers in the text of the
// program, so what is common to loops over them is little.
#pragma once

#if defined(__x86_64__) && defined(__linux__)
#define TRIMTAB_HAS_TILES 1

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "engine/base/error.h"
#include "engine/ops/cpu/packed/packed_panel.h"
#include "engine/ops/cpu/packed/packed_tiles.h"
#include "engine/ops/cpu/packed/row_tiles.h"

#define TRIMTAB_TILES [[gnu::target("avx512f,avx512bw,avx512vl,amx-tile,amx-bf16,amx-int8")]]

namespace trimtab {

/// Rows of words of a panel that a step multiplies by; a tile takes half of each.
inline constexpr int64_t kStepWordRows = 16;
inline constexpr int64_t kWordRowBytes = kPanelRows * 4;
inline constexpr int64_t kStepBytes = kStepWordRows * kWordRowBytes;
inline constexpr int64_t kHalf = 16;  // outputs of a tile
inline constexpr int64_t kHalfBytes = kHalf * 4;

/// Neither loading tiles nor configuring them tells the compiler what memory it reads.
inline void FinishWrites() { asm volatile("" ::: "memory"); }

/// The shapes of tiles while it lives: 0 to 6 have rows of inputs, 7 has words.
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
      shapes.rows[tile] = static_cast<uint8_t>(tile == 7 ? kStepWordRows : height);
    }
    FinishWrites();
    _tile_loadconfig(&shapes);
  }
  TRIMTAB_TILES ~TileShapes() { _tile_release(); }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;
};

/// Asks for `bytes` bytes from `memory` on, which may end before.
inline void AskFor(const char* memory, int64_t bytes) {
  constexpr int64_t kLineBytes = 64;
  for (int64_t i = 0; i < bytes; i += kLineBytes) __builtin_prefetch(memory + i, 0, 2);
}

/// The words of some panels that are multiplied by where they lie, step by step. What a last step
/// lacks is filled up with zeros elsewhere.
class PanelSteps {
 public:
  PanelSteps(WeightFormat format, const PanelRun& panels, int64_t columns)
      : numbers_(static_cast<const char*>(panels.numbers)),
        panel_bytes_(CeilDiv(columns, WordColumns(format)) * kWordRowBytes),
        whole_(panel_bytes_ / kStepBytes) {
    TRIMTAB_ASSERT(panels.count <= kTilePanels, "packed_gemm: {} panels", panels.count);
    const int64_t rest = panel_bytes_ % kStepBytes;
    if (rest == 0) return;
    for (int64_t panel = 0; panel < panels.count; ++panel) {
      std::memcpy(rests_[panel], numbers_ + panel * panel_bytes_ + whole_ * kStepBytes,
                  static_cast<size_t>(rest));
      std::memset(rests_[panel] + rest, 0, static_cast<size_t>(kStepBytes - rest));
    }
  }

  const char* At(int64_t panel, int64_t step) const {
    return step < whole_ ? numbers_ + panel * panel_bytes_ + step * kStepBytes : rests_[panel];
  }
  /// Asks memory for the words of a step that is multiplied by some steps later, where the panels
  /// of a run come `together` at a time, each from its first step to its last.
  void AskAhead(int64_t panel, int64_t step, int64_t together) const {
    constexpr int64_t kStepsAhead = 8;
    const int64_t begin = (step + kStepsAhead) * kStepBytes;
    const int64_t skipped = begin < panel_bytes_ ? 0 : (together - 1) * panel_bytes_;
    AskFor(numbers_ + panel * panel_bytes_ + begin + skipped, kStepBytes);
  }

 private:
  const char* numbers_;
  int64_t panel_bytes_;
  int64_t whole_;  // steps
  alignas(64) char rests_[kTilePanels][kStepBytes];
};

/// Steps of a panel of words, the first of those that are multiplied by together, that a tile of
/// rows of x takes at a time.
struct TileSteps {
  const PanelSteps& words;
  int64_t panel;
  int64_t begin;  // of steps
  int64_t end;
  const char* x;  // [steps, kTileParts, height, kTileRowBytes]
  int64_t part_bytes;
  bool asks;  // of memory for what is multiplied by later
};

}  // namespace trimtab

#endif
