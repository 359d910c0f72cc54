#include "tools/cli/launcher_flag.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/base/error.h"
#include "engine/comm/mpi_launch.h"
#include "tools/cli/foreground.h"
#include "tools/cli/output.h"

namespace trimtab {
namespace {

constexpr char kFlag[] = "--launcher";
constexpr char kOptionsFlag[] = "--launcher-options";
constexpr char kPlanFlag[] = "--plan";

bool IsFlag(const std::string& argument, const std::string& flag) {
  return argument == flag || argument.starts_with(flag + "=");
}

}  // namespace

std::vector<std::string> OwnArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  std::string word;
  std::getline(file, word, '\0');  // the program
  while (std::getline(file, word, '\0')) words.push_back(word);
  return words;
}

std::vector<std::string> ArgumentsForRanks() {
  const std::vector<std::string> words = OwnArguments();
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    if (IsFlag(words[i], kPlanFlag)) continue;
    if (IsFlag(words[i], kFlag)) {
      i += words[i] == kFlag ? 1 : 0;  // its value
    } else if (IsFlag(words[i], kOptionsFlag)) {
      while (i + 1 < words.size() && !words[i + 1].starts_with("-")) ++i;  // its values
    } else {
      kept.push_back(words[i]);
    }
  }
  return kept;
}

void LauncherFlag::Declare(FlagSet& flags) {
  flags.Group("Launching");
  flags.Choice(
      kFlag, launcher_, LauncherNames(),
      {"how ranks are started",
       "inproc: as threads; local: as processes under mpirun on this machine; mpirun: over "
       "hosts; slurm: as a step of a Slurm job. kubernetes can only be planned."});
  flags.Texts(std::string(kOptionsFlag) + " KEY=VALUE ...", options_,
              {"options of the launcher, e.g. partition=gpu time=60", "They are listed below."});
  flags.AfterHelp([] { return "Launchers and their options:\n" + DescribeLauncherOptions(); });
  flags.Switch(kPlanFlag, plan_, "print what the launcher would be sent, and send nothing");
}

LaunchRequest LauncherFlag::RequestFor(const RunConfig& run, int64_t ranks_per_node) const {
  return {.name = "trimtab",
          .study = "trimtab",
          .ranks = run.layout.world_size(),
          .ranks_per_node = ranks_per_node,
          .gpus = run.device != DeviceKind::kCpu,
          .program = std::filesystem::canonical("/proc/self/exe").string(),
          .arguments = ArgumentsForRanks(),
          .log_path = "trimtab"};
}

std::optional<int> LauncherFlag::StartRanks(const RunConfig& run, int64_t ranks_per_node) const {
  const std::unique_ptr<Launcher> launcher = Make();
  if (!launcher->ranks_are_processes() && !plan_) return std::nullopt;
  if (const auto launch = FindMpiLaunch()) {
    throw UsageError(fmt::format("{} started this process already; leave out --launcher {}",
                                 launch->launcher, launcher_));
  }
  const LaunchRequest request = RequestFor(run, ranks_per_node);
  const LaunchPlan plan = launcher->PlanOnce(request);
  if (plan_) {
    Print(ToText(plan));
    return 0;
  }
  if (plan.start.empty()) launcher->Submit(request);  // which says why not
  std::vector<std::string> command = plan.start;
  const bool by_slurm = launcher_ == "slurm";
  command[0] = FindOnPath(command[0], by_slurm ? "slurm-client" : "openmpi-bin");
  if (!by_slurm) return RunInForeground(std::move(command));
  // srun passes signals on itself.
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  throw EnvironmentError(fmt::format("cannot start {}: {}", command[0], std::strerror(errno)));
}

}  // namespace trimtab
