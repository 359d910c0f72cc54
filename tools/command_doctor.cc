#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/rules.h"
#include "engine/device/cuda/loader.h"
#include "tools/command.h"
#include "tools/doctor_speed.h"
#include "tools/table.h"
#include "tools/version.h"

namespace trimtab {
namespace {

constexpr double kSpeedSeconds = 10;

enum class Health { kOk, kNote, kBad };

std::string Name(Health health) {
  return health == Health::kOk ? "ok" : health == Health::kNote ? "note" : "bad";
}

struct Check {
  std::string what;
  Health health = Health::kOk;
  std::string finding;
};

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
  return {"vector units", Health::kNote, "no AVX2: training runs, but several times slower"};
}

Check CheckMemory() {
  const int64_t total = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const int64_t available = int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const Health health = total < 2 * kGiB ? Health::kNote : Health::kOk;
  return {"memory", health,
          fmt::format("{}, {} unused", FormatBytes(total), FormatBytes(available))};
}

Check CheckDisk() {
  struct statvfs disk {};
  if (::statvfs(".", &disk) != 0) return {"disk", Health::kBad, "cannot look at this folder"};
  const int64_t free = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  const bool writable = ::access(".", W_OK) == 0;
  if (!writable) return {"disk", Health::kNote, "this folder cannot be written to"};
  return {"disk", free < kGiB ? Health::kNote : Health::kOk,
          FormatBytes(free) + " free in this folder"};
}

Check CheckGpus() {
  const CudaAvailability& gpus = FindCudaDevices();
  if (gpus.device_count > 0) {
    return {"GPUs", Health::kOk, fmt::format("{} CUDA devices", gpus.device_count)};
  }
  return {"GPUs", Health::kNote, "none, the cpu is used: " + gpus.reason};
}

class DoctorCommand : public Command {
 public:
  std::string name() const override { return "doctor"; }
  std::string summary() const override { return "is this machine fit; the legality rules"; }

  void Declare(FlagSet& flags) override {
    flags.Switch("--rules", rules_, "list the rules a configuration must satisfy");
    flags.Switch("--no-speed", no_speed_, "leave out the ten seconds that look at the speed");
  }

  int Run(const OutputOptions& output) override {
    if (rules_) {
      PrintRules(output);
      return 0;
    }
    std::vector<Check> checks = {CheckProcessor(), CheckVectorUnits(), CheckMemory(), CheckDisk(),
                                 CheckGpus()};
    if (!no_speed_) {
      const SpeedFinding speed = CheckSpeed(kSpeedSeconds);
      checks.push_back({"speed", speed.steady ? Health::kOk : Health::kNote, speed.text});
    }
    if (output.json) {
      nlohmann::json list = nlohmann::json::array();
      for (const Check& check : checks) {
        list.push_back(
            {{"check", check.what}, {"health", Name(check.health)}, {"finding", check.finding}});
      }
      PrintJson({{"schema_version", 1}, {"version", kVersion}, {"checks", std::move(list)}});
    } else {
      Table table({{"check"}, {"health"}, {"finding"}});
      for (const Check& check : checks) {
        table.AddRow({check.what, Name(check.health), check.finding});
      }
      Print(table.ToText(UseColor(output, STDOUT_FILENO)));
    }
    for (const Check& check : checks) {
      if (check.health == Health::kBad) throw EnvironmentError(check.what + ": " + check.finding);
    }
    return 0;
  }

 private:
  static void PrintRules(const OutputOptions& output) {
    if (output.json) {
      nlohmann::json rules = nlohmann::json::array();
      for (const Rule& rule : LegalityRules()) {
        rules.push_back({{"id", rule.id}, {"description", rule.description}});
      }
      PrintJson({{"schema_version", 1}, {"rules", std::move(rules)}});
      return;
    }
    Table table({{"rule"}, {"what must hold"}});
    for (const Rule& rule : LegalityRules()) table.AddRow({rule.id, rule.description});
    Print(table.ToText(UseColor(output, STDOUT_FILENO)));
  }

  bool rules_ = false;
  bool no_speed_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeDoctorCommand() { return std::make_unique<DoctorCommand>(); }

}  // namespace trimtab
