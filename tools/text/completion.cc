#include "tools/text/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace trimtab {
namespace {

/// "--seq" of "--seq N" and of "-s, --seq N"; empty for an argument without a flag.
std::string LongNameOf(const FlagText& flag) {
  const size_t dashes = flag.name.find("--");
  if (dashes == std::string::npos) return "";
  return flag.name.substr(dashes, flag.name.find(' ', dashes) - dashes);
}

/// "N" of "--seq N"; empty for a switch.
std::string ValueOf(const FlagText& flag) {
  const size_t dashes = flag.name.find("--");
  const size_t blank = flag.name.find(' ', dashes == std::string::npos ? 0 : dashes);
  return blank == std::string::npos ? "" : flag.name.substr(blank + 1);
}

/// Words after the program: "data build" of "trimtab data build".
std::string PathOf(const CommandText& command) {
  const size_t blank = command.name.find(' ');
  const std::string path = blank == std::string::npos ? "" : command.name.substr(blank + 1);
  // The flags of a workload are offered together with those of its command.
  return path.substr(0, path.find(" --"));
}

/// Everything that may follow the words of a path.
struct Offered {
  std::vector<CommandText> commands;
  std::vector<FlagText> flags;  // each long name once
};

/// By path, in which "" is the program's own.
std::map<std::string, Offered> OffersOf(const std::vector<CommandText>& commands) {
  std::map<std::string, Offered> offers;
  for (const CommandText& command : commands) {
    Offered& offered = offers[PathOf(command)];
    for (const CommandText& each : command.commands) offered.commands.push_back(each);
    for (const FlagText& flag : command.flags) {
      const std::string name = LongNameOf(flag);
      if (name.empty() || std::ranges::find(offered.flags, name, LongNameOf) != offered.flags.end())
        continue;
      offered.flags.push_back(flag);
    }
    if (std::ranges::find(offered.flags, "--help", LongNameOf) == offered.flags.end()) {
      offered.flags.push_back({.name = "--help", .brief = "print all flags"});
    }
  }
  return offers;
}

/// Text within single quotes of a shell.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

/// Text in a specification of zsh's _arguments, where brackets and colons have a meaning.
std::string Specified(const std::string& text) {
  std::string specified;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') specified += '\\';
    specified += c;
  }
  return specified;
}

std::string ZshArgument(const FlagText& flag) {
  const std::string value = ValueOf(flag);
  std::string text = fmt::format("{}[{}]", LongNameOf(flag), Specified(flag.brief));
  if (value.empty()) return Quoted(text);
  text += fmt::format(":{}:", Specified(value));
  text += flag.choices.empty() ? std::string("_files")
                               : fmt::format("({})", fmt::join(flag.choices, " "));
  return Quoted(text);
}

/// "_trimtab_data_build" of "data build".
std::string FunctionOf(const std::string& path) {
  std::string name = "_trimtab";
  if (!path.empty()) name += "_" + path;
  std::ranges::replace(name, ' ', '_');
  return name;
}

}  // namespace

std::string BashCompletion(const std::vector<CommandText>& commands) {
  std::string words;
  std::string values;
  std::string groups;
  for (const auto& [path, offered] : OffersOf(commands)) {
    std::vector<std::string> names;
    for (const CommandText& each : offered.commands) names.push_back(each.name);
    for (const FlagText& flag : offered.flags) {
      const std::string name = LongNameOf(flag);
      names.push_back(name);
      const std::string key = path + " " + name;
      if (ValueOf(flag).empty()) {
        values += fmt::format("    {}) unset valued ;;\n", Quoted(key));
      } else if (!flag.choices.empty()) {
        values += fmt::format("    {}) choices={} ;;\n", Quoted(key),
                              Quoted(fmt::format("{}", fmt::join(flag.choices, " "))));
      }
    }
    words += fmt::format("    {}) words={} ;;\n", Quoted(path),
                         Quoted(fmt::format("{}", fmt::join(names, " "))));
    if (!path.empty() && !offered.commands.empty()) groups += (groups.empty() ? "" : "|") + path;
  }
  if (groups.empty()) groups = "''";
  return fmt::format(
      R"(# Completion of trimtab for bash; made by trimtab manual --format bash.
_trimtab() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local path= words= choices= valued=1 i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    [[ ${{COMP_WORDS[i]}} == -* ]] && continue
    case $path in
    '') path=${{COMP_WORDS[i]}} ;;
    {}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case $path in
{}  esac
  if [[ $previous == --* ]]; then
    case "$path $previous" in
{}    esac
    if [[ -n $choices ]]; then
      mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$current")
      return
    elif [[ -n $valued ]]; then
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
    fi
  fi
  if [[ $current == -* || $words != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}}
complete -o filenames -F _trimtab trimtab
)",
      groups, words, values);
}

std::string ZshCompletion(const std::vector<CommandText>& commands) {
  std::string text = "#compdef trimtab\n# Made by trimtab manual --format zsh.\n";
  for (const auto& [path, offered] : OffersOf(commands)) {
    text += fmt::format("\n{}() {{\n", FunctionOf(path));
    if (!offered.commands.empty()) text += "  local -a commands\n  local state line\n";
    text += "  _arguments";
    if (!offered.commands.empty()) text += " -C";
    for (const FlagText& flag : offered.flags) text += " \\\n    " + ZshArgument(flag);
    if (offered.commands.empty()) {
      text += " \\\n    '*:file:_files'\n}\n";
      continue;
    }
    text +=
        " \\\n    '1: :->command' '*:: :->rest'\n  case $state in\n  command)\n    commands=(\n";
    for (const CommandText& each : offered.commands) {
      text += "      " + Quoted(Specified(each.name) + ":" + each.summary) + "\n";
    }
    text += "    )\n    _describe command commands ;;\n  rest)\n    case $words[1] in\n";
    for (const CommandText& each : offered.commands) {
      const std::string below = path.empty() ? each.name : path + " " + each.name;
      text += fmt::format("    {}) {} ;;\n", each.name, FunctionOf(below));
    }
    text += "    esac ;;\n  esac\n}\n";
  }
  return text + "\n_trimtab \"$@\"\n";
}

}  // namespace trimtab
