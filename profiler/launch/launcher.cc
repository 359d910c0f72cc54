#include "profiler/launch/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "profiler/launch/kinds.h"
#include "profiler/launch/launch_options.h"

namespace trimtab {
namespace {

/// The command line as one would type it.
std::string Quoted(const std::vector<std::string>& argv) {
  std::string line;
  for (const std::string& word : argv) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return c < 128 &&
             (std::isalnum(c) != 0 ||
              std::string_view("_-./=:,@%+").find(static_cast<char>(c)) != std::string::npos);
    });
    if (!line.empty()) line += ' ';
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? "'\\''" : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace

std::string ToText(const LaunchPlan& plan) {
  std::string text;
  for (const PlannedFile& file : plan.files) {
    text += fmt::format("# {}\n{}", file.path, file.text);
    if (!file.text.ends_with('\n')) text += '\n';
  }
  for (const auto* command : {&plan.reserve, &plan.start}) {
    if (!command->empty()) text += Quoted(*command) + "\n";
  }
  return text;
}

const std::vector<std::string>& LauncherNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const LauncherKind& kind : LauncherKinds()) names.emplace_back(kind.name);
    return names;
  }();
  return kNames;
}

std::string DescribeLauncherOptions() {
  std::string text;
  for (const LauncherKind& kind : LauncherKinds()) text += DescribeOptions(kind.name, kind.options);
  return text;
}

std::unique_ptr<Launcher> MakeLauncher(const std::string& name,
                                       const std::vector<std::string>& options) {
  for (const LauncherKind& kind : LauncherKinds()) {
    if (name == kind.name) return kind.make(ParseLaunchOptions(name, kind.options, options));
  }
  throw UsageError(fmt::format("--launcher: unknown launcher \"{}\"{}", name,
                               SuggestName(name, LauncherNames())));
}

std::string FindOnPath(const std::string& name, const std::string& package) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + name).c_str(), X_OK) != 0) continue;
    // Open MPI takes the folder above for its place, and refuses the root, which is above a /bin
    // that is a link to /usr/bin.
    std::error_code error;
    return (std::filesystem::canonical(folder, error) / name).string();
  }
  throw EnvironmentError(fmt::format("no {} on PATH (Debian: {})", name, package));
}

int64_t NodesOf(const LaunchRequest& request) {
  return (request.ranks + request.ranks_per_node - 1) / request.ranks_per_node;
}

}  // namespace trimtab
