#include "tools/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

#include "engine/comm/mpi_launch.h"

namespace trimtab {
namespace {

std::atomic<int> signals_seen = 0;
std::atomic<int> first_signal = 0;
std::atomic<bool> speaks = true;
static_assert(std::atomic<int>::is_always_lock_free, "used by a signal handler");

/// Only async-signal-safe calls from here on.
void Say(const char* text) {
  if (!speaks) return;
  const auto ignored = ::write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(ignored);
}

void OnStopSignal(int signal) {
  const int seen = ++signals_seen;
  if (seen == 1) {
    first_signal = signal;
    Say("\ntrimtab: finishing what is running and saving; once more cancels\n");
  } else if (seen == 2) {
    Say("\ntrimtab: cancelling; once more leaves at once\n");
  } else {
    ::_exit(128 + signal);
  }
}

}  // namespace

void CatchStopSignals(bool announce) {
  signals_seen = 0;
  first_signal = 0;
  speaks = announce && LaunchedRank() == 0;  // mpirun passes a signal on to every rank
  struct sigaction action {};
  action.sa_handler = OnStopSignal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

void ReleaseStopSignals() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

StopLevel RequestedStop() {
  const int seen = signals_seen;
  if (seen == 0) return StopLevel::kNone;
  return seen == 1 ? StopLevel::kDrain : StopLevel::kCancel;
}

int StopExitCode() {
  const int signal = first_signal;
  return signal == 0 ? 0 : 128 + signal;
}

void IgnoreFileSizeSignal() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace trimtab
