// Products of packed_tiles_cpu.h with int4: sums of bf16 over each group of columns, times its
// scale.
#pragma once

#include "engine/ops/packed_panel_cpu.h"
#include "engine/ops/row_tiles_cpu.h"

namespace trimtab {

/// results [count * height, panels.count * kPanelRows] = tiles [first, first + count) of rows times
/// all columns of each panel and the scales of their groups. For x86-64 alone.
void MultiplyGroupTiles(const PanelRun& panels, const RowTiles& tiles, int64_t first, int64_t count,
                        float* results);

}  // namespace trimtab
