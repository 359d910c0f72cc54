#include "tools/cli/output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "tools/text/wrap.h"

namespace trimtab {
namespace {

bool stdout_silent = false;

/// Whether a failed write says that the terminal is gone: it takes nothing more, and a SIGHUP asks
/// for the end.
bool TerminalIsGone(int error) {
  struct stat now {};
  return error == EIO && ::fstat(STDOUT_FILENO, &now) == 0 && S_ISCHR(now.st_mode);
}

}  // namespace

void SilenceStdout() { stdout_silent = true; }

void Print(std::string_view text) {
  if (stdout_silent) return;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    const int error = errno;
    std::clearerr(stdout);
    if (TerminalIsGone(error)) return SilenceStdout();
    const std::string reason = std::strerror(error);
    throw StorageError(fmt::format("cannot write to stdout: {}", reason));
  }
}

void PrintText(std::string_view text) { Print(WrapColumns(text)); }

void PrintJson(const nlohmann::json& json, bool one_line) {
  Print(json.dump(one_line ? -1 : 2, ' ', /*ensure_ascii=*/false,
                  nlohmann::json::error_handler_t::replace) +
        "\n");
}

bool UseColor(const OutputOptions& options, int fd) {
  if (options.color == "always") return true;
  if (options.color == "never") return false;
  // https://no-color.org: any value but the empty one turns colours off.
  const char* no_color = std::getenv("NO_COLOR");
  return (no_color == nullptr || *no_color == '\0') && ::isatty(fd) == 1;
}

std::string OneLine(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

}  // namespace trimtab
