#include "engine/comm/mpi_launch.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr char kSize[] = "OMPI_COMM_WORLD_SIZE";
constexpr char kRank[] = "OMPI_COMM_WORLD_RANK";
constexpr char kLocalSize[] = "OMPI_COMM_WORLD_LOCAL_SIZE";
constexpr char kLocalRank[] = "OMPI_COMM_WORLD_LOCAL_RANK";

/// The number that a variable holds; nothing when it is no number.
std::optional<int> ParseNumber(const char* text) {
  if (text == nullptr) return std::nullopt;
  int number = -1;
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, number);
  if (error != std::errc() || rest != end || number < 0) return std::nullopt;
  return number;
}

/// `because` is set.
int ReadNumber(const char* name, const char* launcher, const char* because) {
  const char* text = std::getenv(name);
  if (const std::optional<int> number = ParseNumber(text)) return *number;
  throw EnvironmentError(fmt::format("{} is '{}' under {}; expected a number, as {} is set", name,
                                     text == nullptr ? "" : text, launcher, because));
}

// Of the steps that srun starts.
constexpr char kStepSize[] = "SLURM_STEP_NUM_TASKS";
constexpr char kStepRank[] = "SLURM_PROCID";
constexpr char kStepLocalRank[] = "SLURM_LOCALID";
constexpr char kStepTasks[] = "SLURM_STEP_TASKS_PER_NODE";
constexpr char kStepNode[] = "SLURM_NODEID";
/// The MPI library finds its ranks by it: set by srun --mpi=pmix.
constexpr char kPmixRank[] = "PMIX_RANK";

/// Tasks on node `index`, counted from 0, by a list such as "4(x2),1". nullopt for what is no such
/// list, or too short.
std::optional<int> TasksOnNode(std::string_view list, int index) {
  while (!list.empty()) {
    const std::string entry(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    const size_t bracket = entry.find("(x");
    int nodes = 1;
    if (bracket != std::string::npos) {
      const std::optional<int> repeats =
          ParseNumber(entry.substr(bracket + 2, entry.size() - bracket - 3).c_str());
      if (!repeats || !entry.ends_with(')')) return std::nullopt;
      nodes = *repeats;
    }
    if (index < nodes) return ParseNumber(entry.substr(0, bracket).c_str());
    index -= nodes;
  }
  return std::nullopt;
}

/// This process as one of several in a step of Slurm's whose ranks find each other.
std::optional<MpiLaunch> FindStepLaunch() {
  const char* size = std::getenv(kStepSize);
  if (size == nullptr || std::getenv(kPmixRank) == nullptr) return std::nullopt;
  MpiLaunch launch = {.launcher = "srun", .size = ReadNumber(kStepSize, "srun", kPmixRank)};
  if (launch.size <= 1) return std::nullopt;
  launch.rank = ReadNumber(kStepRank, "srun", kStepSize);
  launch.local_rank = ReadNumber(kStepLocalRank, "srun", kStepSize);
  const char* tasks = std::getenv(kStepTasks);
  const std::optional<int> local =
      TasksOnNode(tasks == nullptr ? "" : tasks, ReadNumber(kStepNode, "srun", kStepSize));
  if (!local) {
    throw EnvironmentError(fmt::format("{} is '{}' under srun; expected tasks such as 4(x2),1",
                                       kStepTasks, tasks == nullptr ? "" : tasks));
  }
  launch.local_size = *local;
  return launch;
}

void CheckPlace(const MpiLaunch& launch) {
  if (launch.rank < launch.size && launch.local_rank < launch.local_size &&
      launch.local_size <= launch.size) {
    return;
  }
  throw EnvironmentError(fmt::format(
      "{} says that this is rank {} of {}, and on its node {} of {}, which contradict each other",
      launch.launcher, launch.rank, launch.size, launch.local_rank, launch.local_size));
}

/// How a launcher tells a process its place.
struct OtherLauncher {
  const char* name;
  const char* size;
  const char* rank;
  /// The rank is also set where there is only one process.
  bool rank_alone = false;
};

// A batch script has the number of tasks of its job, and runs as one process all the same: what
// counts is the step, which srun alone starts.
constexpr OtherLauncher kOtherLaunchers[] = {
    {"torchrun", "WORLD_SIZE", "RANK"},
    {"srun", kStepSize, kStepRank, /*rank_alone=*/true},
    {"an MPI that is not Open MPI", "PMI_SIZE", "PMI_RANK"},
    {"MVAPICH", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
};

void Refuse(const OtherLauncher& launcher) {
  const char* size_text = std::getenv(launcher.size);
  const char* rank_text = std::getenv(launcher.rank);
  if (size_text == nullptr && (rank_text == nullptr || launcher.rank_alone)) return;
  const std::optional<int> size = ParseNumber(size_text);
  const std::optional<int> rank = ParseNumber(rank_text);
  if (!size || !rank || *rank >= *size) {
    throw EnvironmentError(fmt::format(
        "{} is '{}' and {} is '{}', which is no rank of a world ({}); expected neither to be set, "
        "or Open MPI's mpirun to start the ranks",
        launcher.rank, rank_text == nullptr ? "" : rank_text, launcher.size,
        size_text == nullptr ? "" : size_text, launcher.name));
  }
  if (*size > 1) {
    throw EnvironmentError(fmt::format(
        "{} says that this is process {} of {} ({}={}), but every one of them would run "
        "all ranks; expected one process, or ranks started by Open MPI's mpirun or by srun "
        "--mpi=pmix",
        launcher.name, *rank, *size, launcher.size, *size));
  }
}

}  // namespace

std::optional<MpiLaunch> FindMpiLaunch() {
  if (std::getenv(kSize) == nullptr) {
    for (const char* name : {kRank, kLocalSize, kLocalRank}) {
      if (std::getenv(name) == nullptr) continue;
      throw EnvironmentError(
          fmt::format("{} is set, but {} is not; expected what mpirun sets, or "
                      "none of it",
                      name, kSize));
    }
    const std::optional<MpiLaunch> step = FindStepLaunch();
    if (step) CheckPlace(*step);
    return step;
  }
  const auto number = [](const char* name) { return ReadNumber(name, "mpirun", kSize); };
  const MpiLaunch launch = {.rank = number(kRank),
                            .size = number(kSize),
                            .local_rank = number(kLocalRank),
                            .local_size = number(kLocalSize)};
  CheckPlace(launch);
  return launch;
}

void RefuseOtherLaunchers() {
  for (const OtherLauncher& launcher : kOtherLaunchers) Refuse(launcher);
}

int LaunchedRank() {
  const std::optional<MpiLaunch> launch = FindMpiLaunch();
  return launch ? launch->rank : 0;
}

}  // namespace trimtab
