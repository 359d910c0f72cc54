#include "engine/comm/mpi_launch.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

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

int ReadNumber(const char* name) {
  const char* text = std::getenv(name);
  if (const std::optional<int> number = ParseNumber(text)) return *number;
  throw EnvironmentError(fmt::format("{} is '{}' under mpirun; expected a number, as {} is set",
                                     name, text == nullptr ? "" : text, kSize));
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
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", /*rank_alone=*/true},
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
        "all ranks; expected one process, or Open MPI's mpirun to start the ranks",
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
    return std::nullopt;
  }
  const MpiLaunch launch = {.rank = ReadNumber(kRank),
                            .size = ReadNumber(kSize),
                            .local_rank = ReadNumber(kLocalRank),
                            .local_size = ReadNumber(kLocalSize)};
  if (launch.rank >= launch.size || launch.local_rank >= launch.local_size ||
      launch.local_size > launch.size) {
    throw EnvironmentError(fmt::format("{}={}, {}={}, {}={} and {}={} contradict each other", kRank,
                                       launch.rank, kSize, launch.size, kLocalRank,
                                       launch.local_rank, kLocalSize, launch.local_size));
  }
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
