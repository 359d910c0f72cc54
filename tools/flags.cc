#include "tools/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/base/units.h"
#include "engine/config/text_values.h"

namespace trimtab {
namespace {

/// The number `text` is, if it is one from its first to its last character.
template <typename T>
bool ParseNumber(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// The help line with the default that a user gets by leaving the flag out. An empty text and a
/// zero stand for something else, which the help explains.
std::string WithDefault(const std::string& help, const std::string& value) {
  return value.empty() || value == "0" ? help : fmt::format("{} [{}]", help, value);
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

void FlagSet::Remember(const std::string& flag, CLI::Option* option, FlagNeed need) {
  if (need == FlagNeed::kRequired) option->description(option->get_description() + " (required)");
  declared_.push_back({flag, option, need});
}

void FlagSet::Text(const std::string& flag, std::string& value, const std::string& help,
                   FlagNeed need) {
  Remember(flag, app_.add_option(flag, value, WithDefault(help, value)), need);
}

void FlagSet::Texts(const std::string& flag, std::vector<std::string>& values,
                    const std::string& help, FlagNeed need) {
  Remember(flag, app_.add_option(flag, values, help), need);
}

void FlagSet::List(const std::string& flag, std::vector<std::string>& values,
                   const std::string& help) {
  const auto set = [&values, flag](const std::string& text) {
    values = Split(text, ',');
    if (std::find(values.begin(), values.end(), "") != values.end()) {
      throw UsageError(
          fmt::format("{}: expected values separated by commas, got '{}'", flag, text));
    }
  };
  const std::string shown = WithDefault(help, fmt::format("{}", fmt::join(values, ",")));
  Remember(flag, app_.add_option_function<std::string>(flag, set, shown)->type_name("A,B,..."),
           FlagNeed::kOptional);
}

void FlagSet::Integer(const std::string& flag, int64_t& value, int64_t min, int64_t max,
                      const std::string& help, FlagNeed need) {
  const auto set = [&value, flag, min, max](const std::string& text) {
    int64_t number = 0;
    if (!ParseNumber(text, number) || number < min || number > max) {
      throw UsageError(
          fmt::format("{}: '{}' is not a whole number from {} to {}", flag, text, min, max));
    }
    value = number;
  };
  const std::string shown = WithDefault(help, fmt::format("{}", value));
  Remember(flag, app_.add_option_function<std::string>(flag, set, shown)->type_name("N"), need);
}

void FlagSet::Number(const std::string& flag, double& value, double min, double max,
                     const std::string& help) {
  AddNumber(flag, value, help, fmt::format("a number from {} to {}", min, max),
            [min, max](double number) { return number >= min && number <= max; });
}

void FlagSet::Positive(const std::string& flag, double& value, double max,
                       const std::string& help) {
  AddNumber(flag, value, help, fmt::format("a number above 0, up to {}", max),
            [max](double number) { return number > 0 && number <= max; });
}

void FlagSet::AddNumber(const std::string& flag, double& value, const std::string& help,
                        const std::string& expected, const std::function<bool(double)>& is_valid) {
  const auto set = [&value, flag, expected, is_valid](const std::string& text) {
    double number = 0;
    if (!ParseNumber(text, number) || !is_valid(number)) {
      throw UsageError(fmt::format("{}: '{}' is not {}", flag, text, expected));
    }
    value = number;
  };
  const std::string shown = WithDefault(help, fmt::format("{}", value));
  Remember(flag, app_.add_option_function<std::string>(flag, set, shown)->type_name("X"),
           FlagNeed::kOptional);
}

void FlagSet::Count(const std::string& flag, double& value, const std::string& help) {
  const auto set = [&value, flag](const std::string& text) { value = ParseCount(text, flag); };
  Remember(flag, app_.add_option_function<std::string>(flag, set, help)->type_name("COUNT"),
           FlagNeed::kOptional);
}

void FlagSet::Bytes(const std::string& flag, int64_t& value, const std::string& help) {
  const auto set = [&value, flag](const std::string& text) { value = ParseBytes(text, flag); };
  Remember(flag, app_.add_option_function<std::string>(flag, set, help)->type_name("SIZE"),
           FlagNeed::kOptional);
}

void FlagSet::Choice(const std::string& flag, std::string& value,
                     const std::vector<std::string>& valid, const std::string& help) {
  const auto set = [&value, flag, valid](const std::string& text) {
    if (std::find(valid.begin(), valid.end(), text) == valid.end()) {
      throw UsageError(
          fmt::format("{}: unknown value '{}'{}", flag, text, SuggestName(text, valid)));
    }
    value = text;
  };
  CLI::Option* option = app_.add_option_function<std::string>(flag, set, WithDefault(help, value));
  option->type_name(fmt::format("{}", fmt::join(valid, "|")));
  Remember(flag, option, FlagNeed::kOptional);
}

void FlagSet::Switch(const std::string& flag, bool& value, const std::string& help) {
  const std::string name = flag.substr(flag.find("--"));
  Remember(name, app_.add_flag(flag, value, help), FlagNeed::kOptional);
}

void FlagSet::Positional(const std::string& name, std::string& value, const std::string& help,
                         FlagNeed need) {
  Remember(name, app_.add_option(name, value, help), need);
}

void FlagSet::AfterHelp(std::string (*text)()) {
  after_help_.push_back(text);
  app_.footer([texts = after_help_] {
    std::string all;
    for (std::string (*each)() : texts) all += (all.empty() ? "" : "\n") + each();
    return all;
  });
}

bool FlagSet::Given(const std::string& flag) const { return !FirstGiven({flag}).empty(); }

std::string FlagSet::FirstGiven(const std::vector<std::string>& flags) const {
  for (const std::string& flag : flags) {
    const auto found = std::find_if(declared_.begin(), declared_.end(),
                                    [&](const Declared& each) { return each.name == flag; });
    if (found != declared_.end() && found->option->count() > 0) return flag;
  }
  return "";
}

void FlagSet::CheckRequired() const {
  for (const Declared& each : declared_) {
    if (each.need == FlagNeed::kRequired && each.option->count() == 0) {
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
