// Following a batch job: what it prints, through requeues, to its end.
#pragma once

#include <functional>
#include <string>

namespace trimtab {

struct FollowOptions {
  std::string output_path;  // what the job writes
  std::function<void(const std::string& text)> on_output;
  std::function<void(const std::string& line)> on_state;  // where it stands, when that changes
  /// How often the user asked to stop: once sends SIGINT to the ranks, twice cancels the job.
  std::function<int()> stops;
};

/// Returns the job's exit code: 128 + n of signal n; that of SIGINT when `stops` had it cancelled.
/// Where the controller forgot the job before it was asked, that of its last words: 0. Throws
/// EnvironmentError when another user's command cancelled it, when its node or time was lost
/// without a requeue, and, having cancelled it, when Slurm says that it can never start.
int FollowJob(const std::string& id, const FollowOptions& options);

}  // namespace trimtab
