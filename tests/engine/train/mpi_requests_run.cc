// One process of a training run of LAYOUT that prints, for each step but the first, how many sends
// and receives between all ranks rank 0 began since the step before: "step S: N". Started by
// mpi_requests_test.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>

#include "engine/base/error.h"
#include "engine/comm/mpi/mpi_world.h"
#include "engine/train/run_training.h"
#include "tests/engine/train/run_losses.h"

int main(int argc, char** argv) {
  using namespace trimtab;
  if (argc < 2) return 64;
  std::signal(SIGTERM, [](int) {});
  RunConfig run = SmallRun(/*llama=*/false);
  run.layout = ParseLayout(argv[1], 0);
  run.steps = 4;
  int64_t before = -1;
  TrainingOptions options;
  options.on_step = [&before](const TrainingStep& step) {
    const int64_t now = MpiWorld::OfProcess().requests(GroupKind::kWorld);
    if (before >= 0) fmt::print("step {}: {}\n", step.step, now - before);
    before = now;
  };
  options.stop_requested = [] { return StopSignal::kNone; };
  try {
    RunTraining(run, options);
  } catch (const Error& error) {
    fmt::print("{}\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
