// Python's two ways to put values into texts: "%s" and "{}".
#pragma once

#include <string>
#include <string_view>

#include "engine/chat/jinja/value.h"

namespace trimtab::jinja {

/// `format` % `values`: a tuple, a dict for %(name)s, or one value. Throws Failure.
Text PercentFormat(const Text& format, const Value& values);
/// format.format(...). Throws Failure.
Text BraceFormat(const Text& format, const Arguments& arguments);

/// How one value is written: [[fill]align][sign][#][0][width][,][.precision][type].
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '='; 0: by type
  char sign = '-';
  bool alternate = false;
  size_t width = 0;
  char grouping = 0;   // ',' or '_'
  int precision = -1;  // none
  char type = 0;       // by the value's type
};

/// Throws Failure for a specification that is none.
FormatSpec ParseFormatSpec(std::string_view text);
Text FormatValue(const Value& value, const FormatSpec& spec);

}  // namespace trimtab::jinja
