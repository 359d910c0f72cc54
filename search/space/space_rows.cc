#include "search/space/space_rows.h"

#include <algorithm>

#include "engine/base/error.h"
#include "search/space/space_row_parts.h"

namespace trimtab {

void AppendDivisors(int64_t n, int64_t largest, Values& values) {
  const auto first = static_cast<std::ptrdiff_t>(values.size());
  for (int64_t i = 1; i * i <= n; ++i) {
    if (n % i != 0) continue;
    if (i <= largest) values.push_back(i);
    if (i != n / i && n / i <= largest) values.push_back(n / i);
  }
  std::sort(values.begin() + first, values.end());
}

void TakeRanks(int64_t count, int64_t& size, ParallelConfig& layout) {
  size = count;
  layout.dp /= count;
}

int64_t ExpertRanks(const ParallelConfig& layout) {
  return layout.tp * layout.cp * layout.dp / (layout.ep * layout.etp);
}

bool Overlaps(const Problem& problem) { return problem.cluster.device != DeviceKind::kCpu; }

const std::vector<SpaceRow>& SpaceRows() {
  static const std::vector<SpaceRow> rows = {PrecisionRow(),
                                             OptimizerStateRow(),
                                             RanksRow(),
                                             GlobalBatchRow(),
                                             TensorParallelRow(),
                                             SequenceParallelRow(),
                                             ContextParallelRow(),
                                             ContextMessagesRow(),
                                             ExpertParallelRow(),
                                             ExpertTensorParallelRow(),
                                             DispatchRow(),
                                             TpOverlapRow(),
                                             MicroBatchRow(),
                                             RecomputeRow(),
                                             PipelineParallelRow(),
                                             ScheduleRow(),
                                             VirtualPipelineRow(),
                                             ZeroRow(),
                                             ShardRow(),
                                             ReshardRow(),
                                             ParamGatherRow(),
                                             RecomputePlanRow()};
  return rows;
}

size_t RowsOf(LayoutPart part) {
  const std::vector<SpaceRow>& rows = SpaceRows();
  const auto found = std::ranges::find(rows, part, &SpaceRow::completes);
  TRIMTAB_ASSERT(found != rows.end(), "no row completes part {}", static_cast<int>(part));
  return static_cast<size_t>(found - rows.begin()) + 1;
}

}  // namespace trimtab
