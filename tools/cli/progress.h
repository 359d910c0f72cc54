// Progress: a bar on a terminal, one line per event otherwise; always on stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "tools/cli/output.h"

namespace trimtab {

/// What a bar shows. Counts of -1 and empty strings are left out.
struct ProgressState {
  std::string label = {};  // "proving", "training"
  int64_t done = 0;
  int64_t failed = -1;
  int64_t running = -1;
  int64_t total = 0;      // 0 = unknown: no bar, no ETA
  std::string best = {};  // "best so far" in words
};

/// "[#####.....] training 5/10, 1 failed, 1 running, best 310 tokens/s, 4 s, ETA 4 s".
std::string ProgressText(const ProgressState& state, double elapsed_s, int width);

class Progress {
 public:
  explicit Progress(const OutputOptions& options);
  /// Clears the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Redraws the bar, at most ten times a second; does nothing without a terminal.
  void Update(const ProgressState& state);
  /// A line that stays: above the bar on a terminal, plain otherwise. Also goes to --log-file.
  void Event(const std::string& line);
  void Clear();

  bool shows_bar() const { return shows_bar_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool shows_bar_ = false;
  bool color_ = false;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_draw_{};
};

}  // namespace trimtab
