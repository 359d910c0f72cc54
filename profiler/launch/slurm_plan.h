// What is sent to Slurm: argv of sbatch and srun, and the two batch scripts. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "profiler/launch/launch_options.h"
#include "profiler/launch/launcher.h"

namespace trimtab {

std::span<const OptionRow> SlurmOptions();

/// The name of the jobs that hold nodes for `study`.
std::string HolderName(const std::string& study);
/// How many nodes are asked for: of the options, else those that the request fills.
int64_t NodesAskedFor(const LaunchRequest& request, const LaunchOptions& options);

/// A job that holds nodes for steps to come. Its script, at `script_path`, does nothing.
std::vector<std::string> HolderCommand(const LaunchRequest& request, const LaunchOptions& options,
                                       const std::string& script_path);
std::string HolderScript();

/// A step of job `job` whose tasks are the ranks; `job` empty: of the job that it runs in.
std::vector<std::string> StepCommand(const LaunchRequest& request, const LaunchOptions& options,
                                     const std::string& job);

/// An srun that asks for nodes, runs the ranks on them, and ends with them.
std::vector<std::string> OnceCommand(const LaunchRequest& request, const LaunchOptions& options);

/// A job of its own that runs the ranks once, and asks for a requeue when their exit code does.
/// `margin_s`: before the time limit it sends SIGUSR2 this long.
struct BatchJob {
  std::string script_path;
  std::string output_path;  // stdout and stderr
  int64_t margin_s = 0;     // 0 = no signal
};
std::vector<std::string> BatchCommand(const LaunchRequest& request, const LaunchOptions& options,
                                      const BatchJob& job);
std::string BatchScript();

}  // namespace trimtab
