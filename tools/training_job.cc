#include "tools/training_job.h"

#include <unistd.h>

#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint.h"
#include "profiler/launch/slurm_client.h"
#include "profiler/launch/slurm_follow.h"
#include "tools/signals.h"

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
  const std::string id =
      SubmitJob(plan.reserve, request.name, NodesOf(request), kSubmitPatienceSeconds);
  LogInfo("submitted job {}; its output goes to {}", id, request.log_path);
  return FollowJob(id, {.output_path = request.log_path,
                        .on_output = [](const std::string& text) { Print(text); },
                        .on_state =
                            [&output](const std::string& line) {
                              if (!output.quiet) LogInfo("{}", line);
                            },
                        .stops = StopsAsked});
}

}  // namespace trimtab
