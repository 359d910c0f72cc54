#include "tools/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "engine/base/log.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

constexpr int kBarWidth = 20;
constexpr std::chrono::milliseconds kRedrawInterval{100};

int TerminalWidth() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

/// In the place of what was drawn before. A terminal that is gone shows nothing.
void Draw(const std::string& text) {
  std::fputs(("\r\x1b[K" + text).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

std::string ProgressText(const ProgressState& state, double elapsed_s, int width) {
  std::string text;
  if (state.total > 0) {
    const int64_t filled = std::clamp<int64_t>(kBarWidth * state.done / state.total, 0, kBarWidth);
    text = fmt::format("[{:#<{}}{:.<{}}] ", "", filled, "", kBarWidth - filled);
  }
  text += state.total > 0 ? fmt::format("{} {}/{}", state.label, state.done, state.total)
                          : fmt::format("{} {}", state.label, state.done);
  if (state.failed > 0) text += fmt::format(", {} failed", state.failed);
  if (state.running > 0) text += fmt::format(", {} running", state.running);
  if (!state.best.empty()) text += ", best " + state.best;
  text += ", " + FormatSeconds(elapsed_s);
  if (state.total > 0 && state.done > 0) {
    const double each_s = elapsed_s / static_cast<double>(state.done);
    text += ", ETA " + FormatSeconds(each_s * static_cast<double>(state.total - state.done));
  }
  return text.substr(0, static_cast<size_t>(std::max(width - 1, 1)));
}

Progress::Progress(const OutputOptions& options)
    : shows_bar_(!options.quiet && ::isatty(STDERR_FILENO) == 1),
      color_(UseColor(options, STDERR_FILENO)) {}

Progress::~Progress() { Clear(); }

void Progress::Update(const ProgressState& state) {
  if (!shows_bar_) return;
  const Clock::time_point now = Clock::now();
  if (now - last_draw_ < kRedrawInterval) return;
  last_draw_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const std::string text = ProgressText(state, elapsed, TerminalWidth());
  Draw(fmt::format("{}{}{}", color_ ? "\x1b[36m" : "", text, color_ ? "\x1b[0m" : ""));
  drawn_ = true;
}

void Progress::Event(const std::string& line) {
  Clear();
  LogInfo("{}", line);
}

void Progress::Clear() {
  if (!drawn_) return;
  Draw("");
  drawn_ = false;
}

}  // namespace trimtab
