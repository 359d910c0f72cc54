// --launcher and its options: how the ranks of a run are started.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/run/run_config.h"
#include "profiler/launch/launcher.h"
#include "tools/cli/flags.h"

namespace trimtab {

class LauncherFlag {
 public:
  void Declare(FlagSet& flags);

  const std::string& name() const { return launcher_; }
  /// --plan: what would be sent is printed, and nothing is sent.
  bool plan() const { return plan_; }
  /// Throws UsageError for options that make no sense.
  std::unique_ptr<Launcher> Make() const { return MakeLauncher(launcher_, options_); }

  /// With another launcher than inproc, starts the ranks of `run`: an mpirun or srun of this
  /// command with the same flags but these. Returns the exit code when they have ended; as an srun,
  /// the call does not return. Otherwise it does nothing. With --plan it prints that command
  /// instead. Throws EnvironmentError when the launcher is not here, UsageError in a process that
  /// some launcher started.
  std::optional<int> StartRanks(const RunConfig& run, int64_t ranks_per_node) const;

  /// What a launcher is asked for when this command's flags are to run as ranks.
  LaunchRequest RequestFor(const RunConfig& run, int64_t ranks_per_node) const;

 private:
  std::string launcher_ = "inproc";
  std::vector<std::string> options_;
  bool plan_ = false;
};

/// The flags this process was started with.
std::vector<std::string> OwnArguments();
/// The flags this process was started with, without --launcher, its options and --plan.
std::vector<std::string> ArgumentsForRanks();

}  // namespace trimtab
