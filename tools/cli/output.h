// Output: stdout is for data only, as a table for people or as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace trimtab {

/// What every command understands.
struct OutputOptions {
  bool json = false;
  bool verbose = false;
  bool quiet = false;
  std::string log_file;
  std::string color = "auto";  // auto | always | never
};

/// From now on this process prints nothing: of the processes that mpirun starts, the first speaks.
void SilenceStdout();

/// Writes to stdout and flushes. Throws StorageError when it cannot (a full disk).
void Print(std::string_view text);

/// Prints text for people: wraps lines that are wider than kMostColumns.
void PrintText(std::string_view text);

/// One JSON object: indented, or with `one_line` as a line of a stream.
void PrintJson(const nlohmann::json& json, bool one_line = false);

/// Whether file descriptor `fd` should get colours: --color, else NO_COLOR and whether it is a
/// terminal.
bool UseColor(const OutputOptions& options, int fd);

/// `text` on one line: line breaks become spaces.
std::string OneLine(std::string_view text);

}  // namespace trimtab
