#include "engine/grammar/string_formats.h"

#include <fmt/format.h>

#include <vector>

namespace trimtab {
namespace {

/// RFC 3339, years 1000 to 9999; 29 February in leap years alone.
std::string DatePattern() {
  const std::string year = "[1-9][0-9]{3}";
  const std::string leap =
      "([1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)";
  const std::string day =
      "(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
      "02-(0[1-9]|1[0-9]|2[0-8])";
  return fmt::format("({}-({})|{}-02-29)", year, day, leap);
}

std::string TimePattern() {
  const std::string hour = "([01][0-9]|2[0-3])";
  return fmt::format("{}:[0-5][0-9]:[0-5][0-9](\\.[0-9]{{1,9}})?(Z|[+-]{}:[0-5][0-9])", hour, hour);
}

std::string DurationPattern() {
  const std::string n = "[0-9]{1,9}";
  const std::string time = fmt::format("T({0}H({0}M({0}S)?)?|{0}M({0}S)?|{0}S)", n);
  const std::string date = fmt::format("({0}Y({0}M({0}D)?)?|{0}M({0}D)?|{0}D)", n);
  return fmt::format("P({0}({1})?|{1}|{2}W)", date, time, n);
}

std::string HostnamePattern() {
  const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return fmt::format("{0}(\\.{0}){{0,3}}", label);
}

std::string Ipv4Pattern() {
  const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  return fmt::format("{0}(\\.{0}){{3}}", byte);
}

/// Each place that "::" may have; none with IPv4 at the end.
std::string Ipv6Pattern() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::string pattern = fmt::format("({0}:){{7}}{0}|::", group);
  for (int before = 0; before <= 6; ++before) {
    const int after = 7 - before;
    const std::string front = before == 0 ? "" : fmt::format("{0}(:{0}){{{1}}}", group, before - 1);
    pattern += fmt::format("|{1}::({0}(:{0}){{0,{2}}})", group, front, after - 1);
    if (before > 0) pattern += fmt::format("|{}::", front);
  }
  pattern += fmt::format("|{0}(:{0}){{6}}::", group);
  return "(" + pattern + ")";
}

std::string UriPattern() {
  const std::string unit = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
  const std::string host = HostnamePattern();
  return fmt::format(
      "[a-z][a-z0-9+.-]{{0,19}}://{0}(:[1-9][0-9]{{0,3}})?(/{1}*)*(\\?({1}|[/?])*)?(#({1}|[/?])*)?",
      host, unit);
}

struct Format {
  std::string_view name;
  std::string (*pattern)();
};

const std::vector<Format>& Formats() {
  static const std::vector<Format> formats = {
      {"date", DatePattern},
      {"date-time", [] { return fmt::format("{}T{}", DatePattern(), TimePattern()); }},
      {"duration", DurationPattern},
      {"email",
       [] {
         const std::string atom = "[A-Za-z0-9_+-]{1,32}";
         return fmt::format("{0}(\\.{0}){{0,3}}@{1}\\.[A-Za-z]{{2,18}}", atom, HostnamePattern());
       }},
      {"hostname", HostnamePattern},
      {"ipv4", Ipv4Pattern},
      {"ipv6", Ipv6Pattern},
      {"time", TimePattern},
      {"uri", UriPattern},
      {"uuid", [] { return std::string("[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"); }},
  };
  return formats;
}

}  // namespace

std::optional<std::string> FormatPattern(std::string_view format) {
  for (const Format& each : Formats()) {
    if (each.name == format) return each.pattern();
  }
  return std::nullopt;
}

std::string FormatNames() {
  std::string names;
  for (const Format& each : Formats()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
  }
  return names;
}

}  // namespace trimtab
