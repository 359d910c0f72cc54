// The options of launchers: KEY=VALUE words of --launcher-options, each checked.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

namespace trimtab {

/// What a value may be.
enum class OptionKind {
  kWord,      // one word of letters, digits and _.,:+@/=&|*!()[]^%~- that begins with no dash
  kNumber,    // a whole number, at least 1
  kDuration,  // minutes, or [days-]hours:minutes:seconds, as Slurm takes them
  kFile,      // an existing file
  kSwitch,    // no value
};

struct OptionRow {
  const char* key;
  OptionKind kind;
  const char* meaning;
};

/// Values by key; "" for a switch that is on.
using LaunchOptions = std::map<std::string, std::string>;

/// `launcher` is named in errors. Throws UsageError: unknown key (with the nearest), a key twice, a
/// value of another kind.
LaunchOptions ParseLaunchOptions(const std::string& launcher, std::span<const OptionRow> rows,
                                 const std::vector<std::string>& words);

/// A line for each row.
std::string DescribeOptions(const std::string& launcher, std::span<const OptionRow> rows);

}  // namespace trimtab
