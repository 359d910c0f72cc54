#include "profiler/other_work.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cost_model/hardware/cluster.h"

namespace trimtab {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// What all threads of this process waited for a core so far. Those that have ended are forgotten,
/// so it may fall.
std::optional<double> WaitedForCores() {
  double waited_s = 0;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(thread.path() / "schedstat");
    double ran_ns = 0;
    double waited_ns = 0;
    if (file >> ran_ns >> waited_ns) {
      waited_s += 1e-9 * waited_ns;
    } else if (!std::filesystem::exists("/proc/self/schedstat")) {
      return std::nullopt;  // this kernel does not count
    }
  }
  if (error) return std::nullopt;
  return waited_s;
}

CoreAccounts Now() {
  CoreAccounts now;
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  now.wall_s = std::chrono::duration<double>(since).count();
  std::string line;
  std::ifstream stat("/proc/stat");
  const auto ticks_per_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (!std::getline(stat, line) || !ReadCpuLine(line, ticks_per_s, now)) return now;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  now.own_s = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  now.waited_s = WaitedForCores();
  return now;
}

}  // namespace

bool ReadCpuLine(const std::string& line, double ticks_per_s, CoreAccounts& accounts) {
  std::istringstream words(line);
  std::string name;
  double user = 0;
  double nice = 0;
  double system = 0;
  double idle = 0;
  double iowait = 0;
  double irq = 0;
  double softirq = 0;
  double steal = 0;
  words >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  if (!words || name != "cpu") return false;
  accounts.busy_s = (user + nice + system + irq + softirq) / ticks_per_s;
  accounts.stolen_s = steal / ticks_per_s;
  return true;
}

double ShareTaken(const CoreAccounts& before, const CoreAccounts& after, int64_t cores) {
  const double whole_s = static_cast<double>(cores) * (after.wall_s - before.wall_s);
  if (whole_s <= 0) return 0;
  double others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s);
  if (before.waited_s && after.waited_s) {
    others_s = std::min(others_s, *after.waited_s - *before.waited_s);
  }
  const double stolen_s = after.stolen_s - before.stolen_s;
  return std::clamp((std::max(0.0, others_s) + stolen_s) / whole_s, 0.0, 1.0);
}

double ShareInTheWay(const CoreAccounts& before, const CoreAccounts& after, int64_t cores,
                     int64_t wanted) {
  const double wall_s = after.wall_s - before.wall_s;
  if (wall_s <= 0) return 0;
  const double others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s) +
                          (after.stolen_s - before.stolen_s);
  const double free_s = wall_s * static_cast<double>(std::max<int64_t>(0, cores - wanted));
  return std::clamp((others_s - free_s) / (wall_s * static_cast<double>(cores)), 0.0, 1.0);
}

OtherWork::OtherWork() : last_(Now()) {}

double OtherWork::Share() {
  const CoreAccounts before = last_;
  last_ = Now();
  return ShareTaken(before, last_, CoresOfThisMachine());
}

double OtherWork::ShareBeside(int64_t wanted) {
  const CoreAccounts before = last_;
  last_ = Now();
  return ShareInTheWay(before, last_, CoresOfThisMachine(), wanted);
}

}  // namespace trimtab
