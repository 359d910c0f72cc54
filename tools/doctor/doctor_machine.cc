// The machine itself: processor and memory.
#include <sched.h>
#include <unistd.h>

#include <fstream>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "tools/doctor/doctor_checks.h"

namespace trimtab {
namespace {

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

Check CheckProcessor() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const int count = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return {"processor", Health::kOk, fmt::format("{}, {} cores", ProcessorName(), count)};
}

Check CheckVectorUnits() {
  if (__builtin_cpu_supports("avx512f")) return {"vector units", Health::kOk, "AVX-512"};
  if (__builtin_cpu_supports("avx2")) return {"vector units", Health::kOk, "AVX2"};
  return {"vector units", Health::kNote, "no AVX2: training works, but several times slower"};
}

Check CheckMemory() {
  const int64_t total = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const int64_t available = int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const Health health = total < 2 * kGiB ? Health::kNote : Health::kOk;
  return {"memory", health,
          fmt::format("{}, {} unused", FormatBytes(total), FormatBytes(available))};
}

}  // namespace

std::string Name(Health health) {
  return health == Health::kOk ? "ok" : health == Health::kNote ? "note" : "bad";
}

std::vector<Check> CheckMachine() { return {CheckProcessor(), CheckVectorUnits(), CheckMemory()}; }

}  // namespace trimtab
