#include "tools/cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/base/units.h"
#include "engine/config/json/text_values.h"

namespace trimtab {
namespace {

/// The number `text` is, if it is one from its first to its last character.
template <typename T>
bool ParseNumber(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// `value` as help shows it where the flag is left out. An empty text and a zero stand for
/// something else, which the help explains.
std::string ShownDefault(std::string value) { return value == "0" ? "" : std::move(value); }

/// "--seq" of "--seq N" and of "-s,--seq N".
std::string NameIn(const std::string& flag) {
  const std::string spelled = flag.substr(0, flag.find(' '));
  const size_t dashes = spelled.find("--");
  return dashes == std::string::npos ? spelled : spelled.substr(dashes);
}

/// "trimtab data info" of the command `info`.
std::string CommandLineOf(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return (parent == nullptr ? "" : CommandLineOf(*parent) + " ") + app.get_name();
}

/// "15T", "300B", "1.5M", "1000": K, M, B and T are 10^3 to 10^12.
double ParseCount(const std::string& text, const std::string& flag) {
  constexpr std::string_view kScales = "KMBT";
  const size_t scale = text.empty() ? kScales.npos : kScales.find(text.back());
  const bool scaled = scale != kScales.npos;
  double count = 0;
  const bool is_number = ParseNumber(text.substr(0, text.size() - (scaled ? 1 : 0)), count);
  if (scaled) count *= std::pow(1e3, static_cast<double>(scale) + 1);
  if (!is_number || !(count >= 1) || count > 1e18) {
    throw UsageError(fmt::format(
        "{}: '{}' is not a count; expected a number from 1 to 1e18, or one with K, M, B "
        "or T behind it, such as 7B",
        flag, text));
  }
  return count;
}

}  // namespace

FlagSet::Declared& FlagSet::Remember(const std::string& flag, CLI::Option* option,
                                     const FlagHelp& help, std::string_view value_word,
                                     const std::string& shown) {
  const size_t blank = flag.find(' ');
  const std::string word = blank == std::string::npos ? std::string(value_word)  //
                                                      : flag.substr(blank + 1);
  std::string name = flag.substr(0, blank);
  if (const size_t comma = name.find(','); comma != std::string::npos) name.insert(comma + 1, " ");
  if (!word.empty()) name += " " + word;
  declared_.push_back({.name = NameIn(flag),
                       .option = option,
                       .text = {.name = std::move(name),
                                .group = group_,
                                .brief = help.brief,
                                .more = help.more,
                                .shown_default = ShownDefault(shown)}});
  return declared_.back();
}

FlagSet::Declared& FlagSet::AddText(const std::string& flag,
                                    std::function<void(const std::string&)> set,
                                    const FlagHelp& help, std::string_view value_word,
                                    const std::string& shown) {
  CLI::Option* option = app_.add_option_function<std::string>(NameIn(flag), std::move(set));
  return Remember(flag, option, help, value_word, shown);
}

void FlagSet::Text(const std::string& flag, std::string& value, const FlagHelp& help,
                   FlagNeed need) {
  Declared& declared =
      Remember(flag, app_.add_option(NameIn(flag), value), help, "TEXT", /*shown=*/value);
  declared.text.required = need == FlagNeed::kRequired;
}

void FlagSet::Texts(const std::string& flag, std::vector<std::string>& values, const FlagHelp& help,
                    FlagNeed need) {
  Declared& declared = Remember(flag, app_.add_option(NameIn(flag), values), help, "TEXT ...");
  declared.text.required = need == FlagNeed::kRequired;
}

void FlagSet::List(const std::string& flag, std::vector<std::string>& values,
                   const FlagHelp& help) {
  const auto set = [&values, name = NameIn(flag)](const std::string& text) {
    values = Split(text, ',');
    if (std::find(values.begin(), values.end(), "") != values.end()) {
      throw UsageError(
          fmt::format("{}: expected values separated by commas, got '{}'", name, text));
    }
  };
  AddText(flag, set, help, "A,B,...", fmt::format("{}", fmt::join(values, ",")));
}

void FlagSet::Integer(const std::string& flag, int64_t& value, int64_t min, int64_t max,
                      const FlagHelp& help, FlagNeed need) {
  const auto set = [&value, name = NameIn(flag), min, max](const std::string& text) {
    int64_t number = 0;
    if (!ParseNumber(text, number) || number < min || number > max) {
      throw UsageError(
          fmt::format("{}: '{}' is not a whole number from {} to {}", name, text, min, max));
    }
    value = number;
  };
  AddText(flag, set, help, "N", fmt::format("{}", value)).text.required =
      need == FlagNeed::kRequired;
}

void FlagSet::Number(const std::string& flag, double& value, double min, double max,
                     const FlagHelp& help) {
  AddNumber(flag, value, help, fmt::format("a number from {} to {}", min, max),
            [min, max](double number) { return number >= min && number <= max; });
}

void FlagSet::Positive(const std::string& flag, double& value, double max, const FlagHelp& help) {
  AddNumber(flag, value, help, fmt::format("a number above 0, up to {}", max),
            [max](double number) { return number > 0 && number <= max; });
}

void FlagSet::AddNumber(const std::string& flag, double& value, const FlagHelp& help,
                        const std::string& expected, const std::function<bool(double)>& is_valid) {
  const auto set = [&value, name = NameIn(flag), expected, is_valid](const std::string& text) {
    double number = 0;
    if (!ParseNumber(text, number) || !is_valid(number)) {
      throw UsageError(fmt::format("{}: '{}' is not {}", name, text, expected));
    }
    value = number;
  };
  AddText(flag, set, help, "X", fmt::format("{}", value));
}

void FlagSet::Count(const std::string& flag, double& value, const FlagHelp& help) {
  const auto set = [&value, name = NameIn(flag)](const std::string& text) {
    value = ParseCount(text, name);
  };
  AddText(flag, set, help, "COUNT");
}

void FlagSet::Bytes(const std::string& flag, int64_t& value, const FlagHelp& help) {
  const auto set = [&value, name = NameIn(flag)](const std::string& text) {
    value = ParseBytes(text, name);
  };
  AddText(flag, set, help, "SIZE");
}

void FlagSet::Choice(const std::string& flag, std::string& value,
                     const std::vector<std::string>& valid, const FlagHelp& help) {
  AddChoice(
      flag, [&value](const std::string& text) { value = text; }, valid, help, value);
}

void FlagSet::AddChoice(const std::string& flag, std::function<void(const std::string&)> set,
                        const std::vector<std::string>& valid, const FlagHelp& help,
                        const std::string& shown) {
  const auto check = [set = std::move(set), name = NameIn(flag), valid](const std::string& text) {
    if (std::find(valid.begin(), valid.end(), text) == valid.end()) {
      throw UsageError(
          fmt::format("{}: unknown value '{}'{}", name, text, SuggestName(text, valid)));
    }
    set(text);
  };
  AddText(flag, check, help, "NAME", shown).text.choices = valid;
}

void FlagSet::Switch(const std::string& flag, bool& value, const FlagHelp& help) {
  Remember(flag, app_.add_flag(flag, value), help, "");
}

void FlagSet::Positional(const std::string& name, std::string& value, const FlagHelp& help,
                         FlagNeed need) {
  Declared& declared = Remember(name, app_.add_option(name, value), help, "");
  declared.text.required = need == FlagNeed::kRequired;
}

void FlagSet::ShortHelpEnds() {
  if (!short_list_.empty()) return;
  for (const Declared& each : declared_) short_list_.push_back(each.name);
}

CommandText FlagSet::Describe() const {
  CommandText command;
  command.name = CommandLineOf(app_);
  command.summary = app_.get_description();
  for (const Declared& each : declared_) {
    if (!each.name.starts_with("-")) {
      command.usage += each.text.required ? each.name + " " : fmt::format("[{}] ", each.name);
    }
    command.flags.push_back(each.text);
  }
  command.usage += "[FLAGS]";
  for (const std::string& name : short_list_) {
    const Declared* declared = Find(name);
    TRIMTAB_ASSERT(declared != nullptr, "{} lists {}, which it does not declare", command.name,
                   name);
    command.short_flags.push_back(static_cast<size_t>(declared - declared_.data()));
  }
  for (std::string (*text)() : after_help_) {
    command.footer += (command.footer.empty() ? "" : "\n") + text();
  }
  return command;
}

const FlagSet::Declared* FlagSet::Find(const std::string& name) const {
  const auto found = std::ranges::find(declared_, name, &Declared::name);
  return found == declared_.end() ? nullptr : &*found;
}

bool FlagSet::Given(const std::string& flag) const { return !FirstGiven({flag}).empty(); }

std::string FlagSet::FirstGiven(const std::vector<std::string>& flags) const {
  for (const std::string& flag : flags) {
    const Declared* found = Find(flag);
    if (found != nullptr && found->option->count() > 0) return flag;
  }
  return "";
}

void FlagSet::CheckRequired() const {
  for (const Declared& each : declared_) {
    if (each.text.required && each.option->count() == 0) {
      throw UsageError(
          fmt::format("{} is required; see '{} --help'", each.name, CommandLineOf(app_)));
    }
  }
}

std::vector<std::string> FlagSet::Names() const {
  std::vector<std::string> names;
  for (const Declared& each : declared_) {
    if (each.name.starts_with("-")) names.push_back(each.name);
  }
  names.push_back("--help");
  return names;
}

}  // namespace trimtab
