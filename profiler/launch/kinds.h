// The kinds of launchers: one row each.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "profiler/launch/launch_options.h"
#include "profiler/launch/launcher.h"

namespace trimtab {

struct LauncherKind {
  const char* name;
  std::span<const OptionRow> options;
  std::unique_ptr<Launcher> (*make)(LaunchOptions options);
};
const std::vector<LauncherKind>& LauncherKinds();

// child_launchers.cc
std::unique_ptr<Launcher> MakeInprocLauncher(LaunchOptions options);
std::unique_ptr<Launcher> MakeMpirunLauncher(LaunchOptions options);
std::span<const OptionRow> MpirunOptions();
// slurm_launcher.cc
std::unique_ptr<Launcher> MakeSlurmLauncher(LaunchOptions options);
// kubernetes_launcher.cc
std::unique_ptr<Launcher> MakeKubernetesLauncher(LaunchOptions options);
std::span<const OptionRow> KubernetesOptions();

}  // namespace trimtab
