#include "profiler/launch/launch_options.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"

namespace trimtab {
namespace {

constexpr std::string_view kWordSigns = "_.,:+@/=&|*!()[]^%~-";
constexpr size_t kMaxValueBytes = 4096;

bool IsWord(const std::string& value) {
  return !value.empty() && value.size() <= kMaxValueBytes && value[0] != '-' &&
         std::all_of(value.begin(), value.end(), [](unsigned char c) {
           return c < 128 && (std::isalnum(c) != 0 ||
                              kWordSigns.find(static_cast<char>(c)) != std::string_view::npos);
         });
}

bool IsNumber(const std::string& value) {
  return !value.empty() && value.size() <= 9 && value[0] != '0' &&
         std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Of Slurm's forms: M, M:S, H:M:S, D-H, D-H:M and D-H:M:S.
bool IsDuration(const std::string& value) {
  static const std::regex kForm("([0-9]+-)?[0-9]+(:[0-9]+){0,2}");
  return value.size() <= 20 && std::regex_match(value, kForm);
}

/// What was expected; empty when `value` is that.
std::string Complaint(OptionKind kind, const std::string& value) {
  switch (kind) {
    case OptionKind::kWord:
      return IsWord(value) ? "" : "a word of letters, digits and " + std::string(kWordSigns);
    case OptionKind::kNumber:
      return IsNumber(value) ? "" : "a whole number, at least 1";
    case OptionKind::kDuration:
      return IsDuration(value) ? "" : "minutes, or [days-]hours:minutes:seconds";
    case OptionKind::kFile: {
      std::error_code error;
      return IsWord(value) && std::filesystem::is_regular_file(value, error) ? "" : "a file";
    }
    case OptionKind::kSwitch:
      return value.empty() ? "" : "no value";
  }
  return "";
}

}  // namespace

LaunchOptions ParseLaunchOptions(const std::string& launcher, std::span<const OptionRow> rows,
                                 const std::vector<std::string>& words) {
  LaunchOptions options;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&key](const OptionRow& each) { return each.key == key; });
    if (row == rows.end()) {
      std::vector<std::string> known;
      for (const OptionRow& each : rows) known.emplace_back(each.key);
      throw UsageError(fmt::format("--launcher-options: \"{}\" is not an option of {}{}", key,
                                   launcher,
                                   known.empty() ? ", which has none" : SuggestName(key, known)));
    }
    const bool has_value = equals != std::string::npos;
    const std::string value = has_value ? word.substr(equals + 1) : "";
    const std::string expected =
        has_value && row->kind == OptionKind::kSwitch ? "no value" : Complaint(row->kind, value);
    if (!expected.empty()) {
      throw UsageError(
          fmt::format("--launcher-options: {} is \"{}\"; expected {}", key, value, expected));
    }
    if (!options.emplace(key, value).second) {
      throw UsageError(fmt::format("--launcher-options: {} is given twice", key));
    }
  }
  return options;
}

std::string DescribeOptions(const std::string& launcher, std::span<const OptionRow> rows) {
  std::string text;
  for (const OptionRow& row : rows) {
    const bool is_switch = row.kind == OptionKind::kSwitch;
    text += fmt::format("  {:<11} {:<26} {}\n", launcher,
                        fmt::format("{}{}", row.key, is_switch ? "" : "=..."), row.meaning);
  }
  return text;
}

}  // namespace trimtab
