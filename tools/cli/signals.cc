#include "tools/cli/signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "engine/comm/mpi_launch.h"

namespace trimtab {
namespace {

std::atomic<int> signals_seen = 0;
std::atomic<int> first_signal = 0;
std::atomic<bool> by_scheduler = false;
std::atomic<StopNotice> says = StopNotice::kSaves;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<StopNotice>::is_always_lock_free,
              "used by a signal handler");

/// Only async-signal-safe calls from here on.
void Say(const char* text) {
  const auto ignored = ::write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(ignored);
}

/// The scheduler speaks, which may say the same thing twice and means nothing more by it.
void OnSchedulerSignal(int signal) {
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, signal)) return;
  by_scheduler = true;
  signals_seen = 1;
  if (says == StopNotice::kNone) return;
  Say(says == StopNotice::kSaves
          ? "\ntrimtab: the scheduler wants the nodes: finishing the step and saving\n"
          : "\ntrimtab: the scheduler wants the nodes: finishing the answers that are running\n");
}

/// Of the process that started these ranks, which was asked to stop, says so, and asks once.
void OnStarterSignal(int signal) {
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) signals_seen = 1;
}

void OnStopSignal(int signal) {
  const int seen = ++signals_seen;
  if (seen > 2) ::_exit(128 + signal);
  if (seen == 1) first_signal = signal;
  SayWhatStops(seen, says);
}

/// Handlers run on a stack of their own where the calling thread is interrupted, which may compute:
/// see engine/base/signals_blocked.h.
void UseOwnStackForHandlers() {
  constexpr size_t kBytes = size_t{256} << 10;  // some 12 KiB of it for the registers
  static std::array<char, kBytes> memory;
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  ::sigaltstack(&stack, nullptr);
}

}  // namespace

void SayWhatStops(int times, StopNotice notice) {
  if (notice == StopNotice::kNone) return;
  if (times > 1) return Say("\ntrimtab: cancelling; once more leaves at once\n");
  Say(notice == StopNotice::kSaves
          ? "\ntrimtab: finishing what is running and saving; once more cancels\n"
          : "\ntrimtab: finishing the answers that are running; once more cancels\n");
}

void CatchStopSignals(StopNotice notice) {
  signals_seen = 0;
  first_signal = 0;
  by_scheduler = false;
  // mpirun passes a signal on to every rank.
  says = LaunchedRank() == 0 ? notice : StopNotice::kNone;
  struct sigaction action {};
  action.sa_handler = OnStopSignal;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  UseOwnStackForHandlers();
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  const bool scheduled = std::getenv("SLURM_JOB_ID") != nullptr;
  if (scheduled) action.sa_handler = OnSchedulerSignal;
  ::sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = OnStopSignal;
  if (!IgnoresHangUp()) ::sigaction(SIGHUP, &action, nullptr);
  action.sa_handler = OnSchedulerSignal;
  ::sigaction(SIGUSR2, &action, nullptr);
  action.sa_handler = OnStarterSignal;
  ::sigaction(SIGUSR1, &action, nullptr);
}

bool IgnoresHangUp() {
  struct sigaction now {};
  return ::sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

bool StoppedByScheduler() { return by_scheduler; }

void ReleaseStopSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) std::signal(signal, SIG_DFL);
  if (!IgnoresHangUp()) std::signal(SIGHUP, SIG_DFL);
}

StopLevel RequestedStop() {
  const int seen = signals_seen;
  if (seen == 0) return StopLevel::kNone;
  return seen == 1 ? StopLevel::kDrain : StopLevel::kCancel;
}

int StopExitCode() {
  const int signal = first_signal;
  const bool of_starter = signal == SIGUSR1 && FindMpiLaunch();
  return signal == 0 || of_starter ? 0 : 128 + signal;
}

void IgnoreFileSizeSignal() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace trimtab
