// One process of a training run in which a rank goes away in the middle of a group's messages:
//
//   mpi_failing_run LAYOUT GROUP RANK NTH throws|exits|killed|stopped
//
// Prints one line, "rank R: what it was told". Started by mpi_failure_test.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "engine/base/error.h"
#include "engine/comm/mpi_launch.h"
#include "engine/runtime/ranks.h"
#include "tests/engine/train/message_listener.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 1000;  // far more than anybody sees

GroupKind GroupOf(const std::string& name) {
  for (const ProcessGroup& row : kProcessGroups) {
    if (Name(row.kind) == name) return row.kind;
  }
  throw UsageError("no group " + name);
}

void GoAway(const std::string& how) {
  if (how == "throws") throw StorageError("the disk is full");
  if (how == "exits") std::exit(0);
  ::raise(how == "killed" ? SIGKILL : SIGSTOP);
}

int Run(const std::string& layout, GroupKind group, int failing, int64_t nth,
        const std::string& how) {
  RunConfig run = SmallExpertRun(/*llama=*/false);
  run.layout = ParseLayout(layout, 0);
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  try {
    RunRanks(run, [&](Rank& rank) {
      MessageListener listener(group, nth, [&how] { GoAway(how); });
      Trainer trainer(run, rank.parallel(), rank.device());
      if (rank.index() == failing) rank.device().set_recorder(&listener);
      for (int64_t step = 0; step < kSteps; ++step) {
        trainer.Step(*source, step);
        if (rank.index() == failing) listener.BeforeBarrier();
        rank.Barrier();
      }
    });
  } catch (const Error& error) {
    // One write, so that the lines of two processes do not mix.
    const std::string line = fmt::format("rank {}: {}\n", LaunchedRank(), error.what());
    [[maybe_unused]] const ssize_t ignored = ::write(STDOUT_FILENO, line.data(), line.size());
    return static_cast<int>(error.code());
  }
  return 0;
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  // What follows the arguments only marks the processes of this run.
  if (argc < 6) return 64;
  // As the command does: mpirun sends it when another rank has died.
  std::signal(SIGTERM, [](int) {});
  return trimtab::Run(argv[1], trimtab::GroupOf(argv[2]), std::stoi(argv[3]), std::stoll(argv[4]),
                      argv[5]);
}
