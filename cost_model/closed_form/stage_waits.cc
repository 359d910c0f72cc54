#include "cost_model/closed_form/stage_waits.h"

#include <algorithm>

namespace trimtab {

double ExposedBetweenStages(const PipelineShape& shape, const StageTimes& times, double message_s) {
  const auto stages = static_cast<double>(shape.pp);
  const auto chunks = static_cast<double>(shape.vp);
  const auto passes = static_cast<double>(shape.micro_batches) * chunks;
  const double forward_s = times.forward / chunks;
  const double backward_s = times.total() / chunks - forward_s;
  const double longer_s =
      std::max(0.0, message_s - forward_s) + std::max(0.0, message_s - backward_s);
  return 2 * (stages - 1) * message_s +
         std::max(2 * stages * (chunks - 1) * message_s, passes * longer_s);
}

BesidePasses Beside(const ParallelConfig& layout, double first_passes_s, double last_passes_s,
                    const EndCosts& end, const Pricer& pricer) {
  const double hidden_share = 1 - pricer.dp_exposed();
  const double reduced_s =
      layout.overlap_grad_reduce ? std::min(hidden_share * end.hideable_s, last_passes_s) : 0;
  const double gathered_s = std::min(hidden_share * end.next_rest_s, first_passes_s);
  return {.exposed_s = end.next_first_s + end.next_rest_s - gathered_s - reduced_s,
          .slowed_s = pricer.slowdown() * (reduced_s + gathered_s)};
}

}  // namespace trimtab
