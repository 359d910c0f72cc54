// What Slurm's controller knows, by its own commands. Where it does not answer, nothing is known:
// never a failure of what runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trimtab {

/// What a job's state means to whoever waits for it.
enum class JobPhase {
  kWaiting,      // in the queue, or back in it
  kRunning,      // its nodes are there
  kEnding,       // over; its nodes are being cleaned
  kCompleted,    // by itself
  kFailed,       // by itself, with an exit code
  kTimeLimit,    //
  kPreempted,    //
  kNodeLost,     //
  kOutOfMemory,  //
  kCancelled,    // by somebody
  kHeld,         // until somebody releases it
  kNotStarted,   // held by Slurm itself, which could not start it: it never begins by itself
  kNeverStarts,  // it waits for what Slurm's limits do not allow it
  kUnknown,      // a word that is not known: no verdict
};
/// By Slurm's word for it: "PENDING", "CANCELLED by 1000", "RUNNING+COMPLETING".
JobPhase PhaseOf(const std::string& state);

struct SlurmJob {
  std::string id;
  std::string state;
  int nodes = 0;
  std::string reason;  // why it waits: "Resources", "QOSMaxJobsPerUserLimit"
  int exit_code = 0;   // of a finished one; 128 + n of signal n
  int restarts = 0;
  bool preempted = false;  // its nodes are promised to another job, though it may run on a while
  JobPhase phase() const;
};

/// True for a reason for which Slurm keeps a job waiting that nothing but a change of the job, or
/// of Slurm's configuration, ends: "PartitionTimeLimit", "QOSMaxWallDurationPerJobLimit".
bool NeverEnds(const std::string& reason);

/// Lines "ID|STATE|NODES|REASON" of squeue. Lines of another form are skipped.
std::vector<SlurmJob> ParseQueue(const std::string& text);
/// A line of scontrol show job --oneliner; nullopt where it is none.
std::optional<SlurmJob> ParseJob(const std::string& text);

/// This user's jobs in the queue that have the name; nullopt: nobody answers.
std::optional<std::vector<SlurmJob>> FindJobs(const std::string& name);
/// The job, also a while after its end; `answered`: the controller did.
std::optional<SlurmJob> ShowJob(const std::string& id, bool& answered);
/// Ids "JOB.STEP" of the job's steps that srun started, with the name, or all if that is empty.
std::optional<std::vector<std::string>> FindSteps(const std::string& job, const std::string& name);

/// Sends a job of so many nodes and returns its id; `name` is that of `argv`'s job. Where the
/// controller does not answer, tries again for `patience_s`, and never sends a second job where the
/// first arrived unnoticed. Returns "" where `stopped` became true meanwhile. Throws
/// EnvironmentError with Slurm's own words.
std::string SubmitJob(const std::vector<std::string>& argv, const std::string& name, int64_t nodes,
                      double patience_s, const std::function<bool()>& stopped = nullptr);
/// Ends jobs or steps, or sends them a signal ("INT"). False: nobody answers.
bool CancelJobs(const std::vector<std::string>& ids, const std::string& signal = "");

}  // namespace trimtab
