#include "engine/runtime/context.h"

#include <sched.h>

#include <algorithm>

namespace trimtab {

LayerContext ContextOf(const RunConfig& run, const ParallelContext& parallel, Device& device,
                       Fp8State* fp8) {
  return {.device = device,
          .parallel = parallel,
          .model = run.model,
          .micro_batch = run.layout.micro_batch,
          .sequence = run.sequence_length,
          .types = TypesOf(run.layout.numerics),
          .routing = run.routing,
          .fp8 = fp8,
          .packing = &run.packing};
}

int ThreadsPerRank(const RunConfig& run) {
  if (run.threads_per_rank > 0) return static_cast<int>(run.threads_per_rank);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const int count = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return std::max(1, count / static_cast<int>(run.layout.world_size()));
}

}  // namespace trimtab
