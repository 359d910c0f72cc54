// A training run as a job of its own, which its scheduler may requeue.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/config/run/run_config.h"
#include "tools/cli/launcher_flag.h"
#include "tools/cli/output.h"

namespace trimtab {

/// With a launcher that has jobs (Slurm's, outside of any job): sends one that runs this command's
/// flags with --resume, and follows it to its end; its exit code. With --plan it only prints what
/// would be sent. nullopt with any other launcher. `checkpoint` may be empty, and then nothing of
/// the run survives a requeue. Throws UsageError when it holds a checkpoint and not `resume`.
std::optional<int> RunAsJob(const LauncherFlag& flag, const RunConfig& run, int64_t ranks_per_node,
                            const std::string& checkpoint, bool resume, int64_t margin_s,
                            const OutputOptions& output);

}  // namespace trimtab
