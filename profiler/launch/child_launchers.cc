// Launchers whose runs are children of this process: ranks as threads of one, or under mpirun.

#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <utility>

#include "engine/base/error.h"
#include "profiler/launch/child_run.h"
#include "profiler/launch/kinds.h"

namespace trimtab {
namespace {

/// How often the kernel has ended a process of this machine for want of memory; 0 where it does not
/// say.
int64_t OomKills() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  for (int64_t count = 0; file >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return 0;
}

class InprocLauncher : public Launcher {
 public:
  LaunchPlan Plan(const LaunchRequest& request) const override {
    LaunchPlan plan;
    plan.start = {request.program};
    plan.start.insert(plan.start.end(), request.arguments.begin(), request.arguments.end());
    return plan;
  }
  std::unique_ptr<LaunchedRun> Submit(const LaunchRequest& request) override {
    return std::make_unique<ChildRun>(Plan(request).start, request.log_path);
  }
  bool ranks_are_processes() const override { return false; }
};

constexpr std::array kMpirunOptions = {
    OptionRow{"hostfile", OptionKind::kFile, "Open MPI's list of hosts and their slots"},
    OptionRow{"host", OptionKind::kWord, "hosts and their slots: a:8,b:8"},
    OptionRow{"interface", OptionKind::kWord, "network interfaces that MPI talks over: eth0,ib0"},
};

/// On this machine, or over the hosts of the options.
class MpirunLauncher : public Launcher {
 public:
  explicit MpirunLauncher(LaunchOptions options) : options_(std::move(options)) {
    if (options_.contains("hostfile") && options_.contains("host")) {
      throw UsageError("--launcher-options: host contradicts hostfile");
    }
  }

  LaunchPlan Plan(const LaunchRequest& request) const override {
    std::vector<std::string> argv = {"mpirun", "-n", std::to_string(request.ranks)};
    if (elsewhere()) {
      for (const char* key : {"hostfile", "host"}) {
        if (const auto at = options_.find(key); at != options_.end()) {
          argv.insert(argv.end(), {fmt::format("--{}", key), at->second});
        }
      }
      // The nodes are filled one after the other, as the cluster's links are priced.
      argv.insert(argv.end(), {"--map-by", "slot"});
    } else {
      // A machine may have fewer cores than a layout has ranks, as with in-process ranks.
      argv.emplace_back("--oversubscribe");
    }
    if (const auto at = options_.find("interface"); at != options_.end()) {
      argv.insert(argv.end(), {"--mca", "btl_tcp_if_include", at->second});
    }
    // A rank shares its cores among threads of its own, so nobody is bound to one.
    argv.insert(argv.end(), {"--bind-to", "none"});
    if (as_root_) argv.emplace_back("--allow-run-as-root");
    argv.push_back(request.program);
    argv.insert(argv.end(), request.arguments.begin(), request.arguments.end());
    return {.start = std::move(argv)};
  }

  std::unique_ptr<LaunchedRun> Submit(const LaunchRequest& request) override {
    std::vector<std::string> argv = Plan(request).start;
    argv[0] = FindOnPath(argv[0], "openmpi-bin");
    return std::make_unique<ChildRun>(argv, request.log_path);
  }

  bool elsewhere() const override {
    return options_.contains("hostfile") || options_.contains("host");
  }

 private:
  const LaunchOptions options_;
  const bool as_root_ = ::geteuid() == 0;
};

}  // namespace

ChildRun::ChildRun(const std::vector<std::string>& command, const std::string& log_path)
    : child_(command.at(0), {command.begin() + 1, command.end()}, log_path),
      oom_kills_(OomKills()) {}

LaunchEnd ChildRun::Classify(const std::string& /*log*/) {
  const bool killed = child_.Wait().exit_code == 128 + SIGKILL;
  return killed && OomKills() > oom_kills_ ? LaunchEnd::kOutOfMemory : LaunchEnd::kExited;
}

std::span<const OptionRow> MpirunOptions() { return kMpirunOptions; }

std::unique_ptr<Launcher> MakeInprocLauncher(LaunchOptions /*options*/) {
  return std::make_unique<InprocLauncher>();
}

std::unique_ptr<Launcher> MakeMpirunLauncher(LaunchOptions options) {
  return std::make_unique<MpirunLauncher>(std::move(options));
}

}  // namespace trimtab
