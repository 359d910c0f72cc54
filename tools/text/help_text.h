// Help: the texts that -h and --help print about a command.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trimtab {

/// The widest line of -h.
inline constexpr size_t kShortHelpColumns = 79;

/// A flag or an argument, in words.
struct FlagText {
  std::string name = {};   // "--seq N", "-v, --verbose"
  std::string group = {};  // the heading of --help that it is under
  std::string brief = {};  // one clause
  std::string more = {};   // sentences that only --help prints
  std::string shown_default = {};
  std::vector<std::string> choices = {};
  bool required = false;
};

/// A command, in words.
struct CommandText {
  std::string name = {};     // "trimtab data build"
  std::string summary = {};  // one clause
  std::string usage = {};    // what follows the name: "[FLAGS]"
  std::vector<FlagText> flags = {};
  std::vector<size_t> short_flags = {};  // indices into `flags`, in the order of -h
  std::vector<CommandText> commands = {};
  std::string footer = {};  // tables that only --help prints
};

/// -h: the flags that matter, one line each of at most kShortHelpColumns.
std::string ShortHelp(const CommandText& command);

/// --help: all flags by group, then the footer; lines of at most kMostColumns.
std::string LongHelp(const CommandText& command);

}  // namespace trimtab
