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

int ReadNumber(const char* name) {
  const char* text = std::getenv(name);
  int number = -1;
  if (text != nullptr) {
    const char* end = text + std::strlen(text);
    const auto [rest, error] = std::from_chars(text, end, number);
    if (error == std::errc() && rest == end && number >= 0) return number;
  }
  throw EnvironmentError(fmt::format("{} is '{}' under mpirun; expected a number, as {} is set",
                                     name, text == nullptr ? "" : text, kSize));
}

}  // namespace

std::optional<MpiLaunch> FindMpiLaunch() {
  if (std::getenv(kSize) == nullptr) return std::nullopt;
  const MpiLaunch launch = {.rank = ReadNumber(kRank),
                            .size = ReadNumber(kSize),
                            .local_rank = ReadNumber(kLocalRank),
                            .local_size = ReadNumber(kLocalSize)};
  if (launch.rank >= launch.size || launch.local_rank >= launch.local_size) {
    throw EnvironmentError(fmt::format("{}={} and {}={} contradict each other", kRank, launch.rank,
                                       kSize, launch.size));
  }
  return launch;
}

int LaunchedRank() {
  const std::optional<MpiLaunch> launch = FindMpiLaunch();
  return launch ? launch->rank : 0;
}

}  // namespace trimtab
