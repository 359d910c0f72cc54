#include "cost_model/closed_form/stage_waits.h"

#include <algorithm>

namespace trimtab {
namespace {

/// By how much messages are longer than the passes of a chunk that they run beside, one each way.
double LongerThanPasses(double chunks, const StageTimes& times, double message_s) {
  const double forward_s = times.forward / chunks;
  const double backward_s = times.total() / chunks - forward_s;
  return std::max(0.0, message_s - forward_s) + std::max(0.0, message_s - backward_s);
}

}  // namespace

double ExposedBetweenStages(const PipelineShape& shape, const StageTimes& times, double message_s) {
  const auto stages = static_cast<double>(shape.pp);
  const auto chunks = static_cast<double>(shape.vp);
  const auto passes = static_cast<double>(shape.micro_batches) * chunks;
  return 2 * (stages - 1) * message_s +
         std::max(2 * stages * (chunks - 1) * message_s,
                  passes * LongerThanPasses(chunks, times, message_s));
}

double ExposedByRoundTrips(const PipelineShape& shape, const StageTimes& times, double message_s,
                           const RoundTrip& trip) {
  const auto stages = static_cast<double>(shape.pp);
  const auto micro_batches = static_cast<double>(shape.micro_batches);
  const double messages_s = 2 * (stages - 1) * message_s;
  const double each_s = times.total() + LongerThanPasses(1, times, message_s);
  const double waits_s = std::max(0.0, (trip.passes + messages_s) / stages - each_s);
  const double filled = std::clamp((micro_batches - 2) / (stages - 1), 0.0, 1.0);
  return (micro_batches - 1) * waits_s + filled * std::min(messages_s, trip.beside);
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
