#include "tools/cli/training_job.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint.h"
#include "profiler/launch/log_words.h"
#include "profiler/launch/slurm_client.h"
#include "profiler/launch/slurm_follow.h"
#include "tools/cli/signals.h"

namespace trimtab {
namespace {

constexpr double kSubmitPatienceSeconds = 600;

int StopsAsked() {
  switch (RequestedStop()) {
    case StopLevel::kNone:
      return 0;
    case StopLevel::kDrain:
      return 1;
    case StopLevel::kCancel:
      return 2;
  }
  return 0;
}

/// Describes a run that ended too soon, and the command that goes on with it.
std::string HowToGoOn(const std::string& checkpoint, const std::string& log_path) {
  std::vector<std::string> command = OwnArguments();
  command.insert(command.begin(), "trimtab");
  const bool saved = !checkpoint.empty() && !NewestCheckpoint(checkpoint).empty();
  if (saved && std::find(command.begin(), command.end(), "--resume") == command.end()) {
    command.emplace_back("--resume");
  }
  std::string line = ToText({.start = command});
  line.pop_back();  // its end
  const std::string newest = saved ? fmt::format("the newest checkpoint is {} at step {}; continue",
                                                 NewestCheckpoint(checkpoint),
                                                 StepOfCheckpoint(NewestCheckpoint(checkpoint)))
                             : checkpoint.empty() ? "no --checkpoint was given; start again"
                                                  : "no checkpoint was saved yet; start again";
  return fmt::format("{} with: {}; log: {}", newest, line, log_path);
}

/// Of what a job prints: passes on what its program says, and keeps what else is said of its ranks.
class JobOutput {
 public:
  void Add(const std::string& text) {
    log_ += text;
    if (log_.size() > kMostBytes) log_.erase(0, log_.size() - kMostBytes);
    Print(noise_.Filter(text));
  }
  /// The job is in the queue, perhaps again: what was said of earlier ranks is over.
  void Wait() { log_.clear(); }
  void End() { Print(noise_.Flush()); }
  std::optional<LostRank> Lost() const { return FindLostRank(log_); }

 private:
  static constexpr size_t kMostBytes = size_t{256} << 10;
  std::string log_;
  LauncherNoise noise_;
};

int Follow(const std::string& id, const std::string& log_path, const std::string& checkpoint,
           const OutputOptions& output) {
  JobOutput job;
  bool ran = false;
  int code = 0;
  try {
    code = FollowJob(id, {.output_path = log_path,
                          .on_output = [&job](const std::string& text) { job.Add(text); },
                          .on_state =
                              [&](const std::string& line) {
                                const bool waits = line.find("PENDING") != std::string::npos;
                                if (waits) job.Wait();
                                ran = ran || !waits;
                                if (!output.quiet) LogInfo("{}", line);
                              },
                          .stops = StopsAsked});
  } catch (const EnvironmentError& error) {
    job.End();
    if (!ran) throw;  // nothing is there to go on with
    throw EnvironmentError(fmt::format("{}; {}", error.what(), HowToGoOn(checkpoint, log_path)));
  }
  job.End();
  if (code == 0 || StopsAsked() > 0) return code;
  const std::optional<LostRank> lost = job.Lost();
  LogWarning("{}; {}",
             lost ? fmt::format("rank {} on {} ended by {}", lost->rank, lost->node, lost->how)
                  : fmt::format("job {} ended with exit code {}", id, code),
             HowToGoOn(checkpoint, log_path));
  return code;
}

}  // namespace

std::optional<int> RunAsJob(const LauncherFlag& flag, const RunConfig& run, int64_t ranks_per_node,
                            const std::string& checkpoint, bool resume, int64_t margin_s,
                            const OutputOptions& output) {
  const std::unique_ptr<Launcher> launcher = flag.Make();
  LaunchRequest request = flag.RequestFor(run, ranks_per_node);
  const std::string base = std::filesystem::absolute(
      checkpoint.empty() ? "trimtab-train" : std::filesystem::path(checkpoint).lexically_normal());
  request.name = fmt::format("trimtab-train-{}", ::getpid());
  request.log_path = fmt::format("{}.slurm-{}.log", base, ::getpid());
  if (!checkpoint.empty() && !resume) request.arguments.emplace_back("--resume");
  const LaunchPlan plan = launcher->PlanJob(request, base, margin_s);
  if (plan.reserve.empty()) return std::nullopt;
  if (flag.plan()) {
    Print(ToText(plan));
    return 0;
  }
  if (!checkpoint.empty() && !resume && !NewestCheckpoint(checkpoint).empty()) {
    throw UsageError(fmt::format(
        "{}: holds a checkpoint, which the job would go on from; expected --resume, or another "
        "folder",
        checkpoint));
  }
  for (const PlannedFile& planned : plan.files) {
    AtomicFile file(planned.path);
    file.Append(planned.text);
    file.Commit();
  }
  const std::string id = SubmitJob(plan.reserve, request.name, NodesOf(request),
                                   kSubmitPatienceSeconds, [] { return StopsAsked() > 0; });
  if (id.empty()) {
    LogWarning("stopped while Slurm's controller did not answer; a job named {} may be queued",
               request.name);
    return StopExitCode();
  }
  LogInfo("submitted job {}; its output goes to {}", id, request.log_path);
  return Follow(id, request.log_path, checkpoint, output);
}

}  // namespace trimtab
