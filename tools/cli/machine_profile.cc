#include "tools/cli/machine_profile.h"

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "cost_model/hardware/cluster.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "profiler/calibrate/calibrate.h"
#include "tools/cli/progress.h"
#include "tools/cli/version.h"

namespace trimtab {
namespace {

/// An absolute folder that the environment names; empty if it names none.
std::string FolderOf(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && value[0] == '/' ? value : "";
}

/// Lower-case letters, digits and dots, everything else a dash: "intel-xeon-2-cores-0.1.0".
std::string Slug(const std::string& text) {
  std::string slug;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '.') {
      slug += static_cast<char>(std::tolower(byte));
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  return slug;
}

/// As people write it: "~/.cache/trimtab/...".
std::string Shown(const std::string& path) {
  const std::string home = FolderOf("HOME");
  const bool inside = !home.empty() && path.starts_with(home + "/");
  return inside ? fmt::format("~{}", path.substr(home.size())) : path;
}

/// What DescribeThisMachine leaves of it: the date.
std::string DateOf(const HardwareProfile& profile) {
  const std::string before = DescribeThisMachine() + ", ";
  const std::string& text = profile.measured_on;
  return text.starts_with(before) ? text.substr(before.size()) : text;
}

void Keep(const HardwareProfile& profile, const std::string& path) {
  // An error here shows when the file is written.
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  try {
    SaveHardwareProfile(profile, path);
  } catch (const StorageError& error) {
    LogWarning("the profile of this machine is not kept: {}", error.what());
  }
}

}  // namespace

std::string MachineProfilePath() {
  std::string cache = FolderOf("XDG_CACHE_HOME");
  if (cache.empty()) {
    const std::string home = FolderOf("HOME");
    if (home.empty()) return "";
    cache = home + "/.cache";
  }
  return fmt::format("{}/trimtab/{}-{}.json", cache, Slug(DescribeThisMachine()), kVersion);
}

std::string PrepareMachineProfilePath() {
  const std::string path = MachineProfilePath();
  if (path.empty()) {
    throw UsageError("--out is missing, and neither XDG_CACHE_HOME nor HOME names a folder");
  }
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw StorageError(fmt::format("{}: cannot make it: {}", folder.string(), error.message()));
  }
  return path;
}

std::optional<HardwareProfile> KeptMachineProfile(const std::string& path) {
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored)) return std::nullopt;
  try {
    HardwareProfile profile = LoadHardwareProfile(path);
    if (!profile.measured_on.starts_with(DescribeThisMachine())) {
      LogWarning("{}: is of another machine, {}, and is not used", Shown(path),
                 profile.measured_on);
      return std::nullopt;
    }
    LogInfo(
        "using the profile of this machine measured on {}: {}; 'trimtab calibrate' measures it "
        "anew",
        DateOf(profile), Shown(path));
    return profile;
  } catch (const InputError& error) {
    LogWarning("the kept profile of this machine is damaged and not used: {}", error.what());
    return std::nullopt;
  }
}

HardwareProfile MachineProfile(const std::string& path,
                               const std::function<HardwareProfile()>& measure) {
  if (std::optional<HardwareProfile> kept = KeptMachineProfile(path)) return *std::move(kept);
  LogInfo("measuring this machine, about a minute{}; '--profile generic' predicts without",
          path.empty() ? "" : " and this once");
  HardwareProfile profile = measure();
  if (!path.empty()) Keep(profile, path);
  return profile;
}

HardwareProfile MeasureMachine(const OutputOptions& output) {
  Progress progress(output);
  CalibrateOptions options;
  options.quick = true;
  options.progress = [&](std::string_view, int done, int total) {
    progress.Update({.label = "measuring", .done = done, .total = total});
  };
  HardwareProfile profile = Calibrate(options);
  progress.Clear();
  if (const std::string caveat = SpreadCaveat(profile); !caveat.empty()) LogWarning("{}", caveat);
  return profile;
}

}  // namespace trimtab
