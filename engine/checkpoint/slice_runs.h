// Where the elements of a local shard lie in the full tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/parameters/parameter.h"

namespace trimtab {

/// [full_rows] of a vector, [full_rows, full_columns] of a matrix.
std::vector<int64_t> FullShape(const ParameterSpec& spec);

/// Calls `visit(local, full, count)` for each longest run of elements of the local shard within
/// [begin, end) that is also a run of the full tensor: `count` elements from flat element `local`
/// of the shard and `full` of the full tensor on. Padding is left out.
void ForEachRun(const ParameterSpec& spec, int64_t begin, int64_t end,
                const std::function<void(int64_t local, int64_t full, int64_t count)>& visit);

}  // namespace trimtab
