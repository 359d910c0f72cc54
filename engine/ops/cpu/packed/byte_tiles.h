// Products of packed_tiles.h with int8: of bytes, summed in 32 bits.
#pragma once

#include "engine/ops/cpu/packed/packed_panel.h"
#include "engine/ops/cpu/packed/row_tiles.h"

namespace trimtab {

/// results [count * height, panels.count * kPanelRows] = tiles [first, first + count) of rows times
/// all columns of each panel, yet to be multiplied by its scales. For x86-64 alone.
void MultiplyByteTiles(const PanelRun& panels, const RowTiles& tiles, int64_t first, int64_t count,
                       float* results);

}  // namespace trimtab
