// Products of packed_tiles.h with int4: sums of bf16 over each group of columns, times its
// scale.
#pragma once

#include "engine/ops/cpu/packed/packed_panel.h"
#include "engine/ops/cpu/packed/row_tiles.h"

namespace trimtab {

/// results [count * height, panels.count * kPanelRows] = tiles [first, first + count) of rows times
/// all columns of each panel and the scales of their groups. For x86-64 alone.
void MultiplyGroupTiles(const PanelRun& panels, const RowTiles& tiles, int64_t first, int64_t count,
                        float* results);

}  // namespace trimtab
