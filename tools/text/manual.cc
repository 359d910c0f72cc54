#include "tools/text/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace trimtab {
namespace {

/// Text that roff prints as it is. A line must not begin with a dot or a quote, which are requests.
std::string Escaped(const std::string& text) {
  std::string escaped;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) escaped += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

/// A paragraph with a hanging title.
std::string Item(const std::string& title, const std::string& text) {
  return fmt::format(".TP\n.B {}\n{}\n", Escaped(title), Escaped(text));
}

std::string FlagItem(const FlagText& flag) {
  std::string text = flag.brief;
  if (flag.required) text += " (required)";
  if (!flag.shown_default.empty()) text += fmt::format(" [{}]", flag.shown_default);
  text += ".";
  if (!flag.more.empty()) text += " " + flag.more;
  if (!flag.choices.empty()) text += fmt::format(" One of: {}.", fmt::join(flag.choices, ", "));
  return Item(flag.name, text);
}

std::string OptionsOf(const CommandText& command) {
  std::vector<std::string> groups;
  for (const FlagText& flag : command.flags) {
    if (std::ranges::find(groups, flag.group) == groups.end()) groups.push_back(flag.group);
  }
  std::string text = groups.empty() ? "" : ".SH OPTIONS\n";
  for (const std::string& group : groups) {
    text += fmt::format(".SS {}\n", Escaped(group));
    for (const FlagText& flag : command.flags) {
      if (flag.group == group) text += FlagItem(flag);
    }
  }
  return text;
}

constexpr char kExitStatus[] =
    ".SH EXIT STATUS\n"
    ".nf\n"
    "0   done\n"
    "1   internal error\n"
    "2   wrong usage\n"
    "3   bad input file\n"
    "4   no feasible configuration\n"
    "5   partial result: valid, but not settled\n"
    "6   environment: driver, launcher, device\n"
    "7   storage: disk full, damaged study\n"
    "85  a scheduler wanted its nodes back; the state is saved\n"
    "128 + n after signal n\n"
    ".fi\n";

}  // namespace

std::string ManPageName(const CommandText& command) {
  std::string name;
  for (const char c : command.name) {
    // "trimtab search --for serving" is trimtab-search-for-serving.
    if (c != ' ' && c != '-') {
      name += c;
    } else if (!name.ends_with('-')) {
      name += '-';
    }
  }
  return name;
}

std::string ManPage(const CommandText& command, const std::string& program) {
  const std::string name = ManPageName(command);
  std::string text = fmt::format(
      ".TH \"{}\" 1 \"\" \"{}\" \"Trimtab\"\n"
      ".SH NAME\n{} \\- {}\n"
      ".SH SYNOPSIS\n.B {}\n{}\n",
      Escaped(name), Escaped(program), Escaped(name), Escaped(command.summary),
      Escaped(command.name), Escaped(command.usage));
  if (!command.commands.empty()) text += ".SH COMMANDS\n";
  for (const CommandText& each : command.commands) text += Item(each.name, each.summary);
  text += OptionsOf(command);
  if (!command.footer.empty()) {
    text += fmt::format(".SH NOTES\n.nf\n{}.fi\n", Escaped(command.footer));
  }
  text += kExitStatus;
  if (name != "trimtab") text += ".SH SEE ALSO\n.BR trimtab (1)\n";
  return text;
}

std::string CommandReference(const std::vector<CommandText>& commands) {
  std::string text =
      "# Commands\n\n"
      "After this page you can look up a flag. The texts are those of `--help`;\n"
      "`trimtab manual --format markdown` prints this page.\n";
  for (const CommandText& command : commands) {
    text += fmt::format("\n## {}\n\n```\n{}```\n", command.name, LongHelp(command));
  }
  return text;
}

}  // namespace trimtab
