#include "tools/text/help_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/text/wrap.h"

namespace trimtab {
namespace {

// Longer names have a line of their own in --help.
constexpr size_t kMostNameColumns = 26;

std::string Capitalized(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] += 'A' - 'a';
  return text;
}

std::string HeadOf(const CommandText& command) {
  return fmt::format("{}.\nUsage: {} {}\n", Capitalized(command.summary), command.name,
                     command.usage);
}

/// The clause, and what leaving the flag out means.
std::string BriefOf(const FlagText& flag) {
  if (flag.required) return flag.brief + " (required)";
  if (flag.shown_default.empty()) return flag.brief;
  return fmt::format("{} [{}]", flag.brief, flag.shown_default);
}

std::string CommandsText(const CommandText& command) {
  if (command.commands.empty()) return "";
  size_t width = 0;
  for (const CommandText& each : command.commands) width = std::max(width, each.name.size());
  std::string text = "\nCommands:\n";
  for (const CommandText& each : command.commands) {
    text += fmt::format("  {}  {}\n", PadRight(each.name, width), each.summary);
  }
  return text;
}

/// The flags of `group`, each with its clause beside the name and its sentences below.
std::string GroupText(const CommandText& command, const std::string& group, size_t column) {
  std::string text = fmt::format("\n{}:\n", group);
  for (const FlagText& flag : command.flags) {
    if (flag.group != group) continue;
    std::vector<std::string> lines = WrapWords(BriefOf(flag), kMostColumns - column);
    std::string more = flag.more;
    if (!flag.choices.empty()) {
      more += fmt::format("{}One of: {}.", more.empty() ? "" : " ", fmt::join(flag.choices, ", "));
    }
    if (!more.empty()) {
      for (std::string& line : WrapWords(more, kMostColumns - column)) {
        lines.push_back(std::move(line));
      }
    }
    std::string name = "  " + flag.name;
    if (DisplayWidth(name) + 2 > column) {
      text += name + "\n";
      name.clear();
    }
    for (const std::string& line : lines) {
      text += PadRight(name, column) + line + "\n";
      name.clear();
    }
  }
  return text;
}

}  // namespace

std::string ShortHelp(const CommandText& command) {
  std::string text = HeadOf(command) + CommandsText(command);
  size_t width = 0;
  for (const size_t i : command.short_flags) {
    width = std::max(width, DisplayWidth(command.flags[i].name));
  }
  if (!command.short_flags.empty()) text += "\n";
  for (const size_t i : command.short_flags) {
    const FlagText& flag = command.flags[i];
    std::string line = fmt::format("  {}  {}", PadRight(flag.name, width), BriefOf(flag));
    if (!flag.choices.empty()) {
      const std::string choices = fmt::format(" ({})", fmt::join(flag.choices, ", "));
      if (DisplayWidth(line) + choices.size() <= kShortHelpColumns) line += choices;
    }
    text += line + "\n";
  }
  if (!command.commands.empty()) {
    return text + fmt::format("\nMore about one of them: {} COMMAND -h\n", command.name);
  }
  return text + fmt::format("\nAll {} flags: {} --help\n", command.flags.size(), command.name);
}

std::string LongHelp(const CommandText& command) {
  std::vector<std::string> groups;
  size_t width = 0;
  for (const FlagText& flag : command.flags) {
    if (std::ranges::find(groups, flag.group) == groups.end()) groups.push_back(flag.group);
    const size_t name = DisplayWidth(flag.name);
    if (name <= kMostNameColumns) width = std::max(width, name);
  }
  std::string text = HeadOf(command) + CommandsText(command);
  for (const std::string& group : groups) text += GroupText(command, group, width + 4);
  if (!command.footer.empty()) text += "\n" + WrapColumns(command.footer);
  return text;
}

}  // namespace trimtab
