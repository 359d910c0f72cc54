// Signals: Ctrl-C asks nicely, then firmly, then leaves.
#pragma once

namespace trimtab {

/// How often SIGINT, SIGTERM or SIGHUP (the terminal is gone) came: the first asks to finish what
/// is running and save, the second to cancel it. A scheduler that wants its nodes back (SIGUSR2,
/// and in a job of Slurm's SIGTERM) asks for the former, however often it says so; so does the
/// process that started these ranks (SIGUSR1, foreground.h).
enum class StopLevel { kNone, kDrain, kCancel };

/// What stderr says when one comes.
enum class StopNotice {
  kNone,
  kSaves,    // what is running is finished and saved
  kAnswers,  // running answers are finished; there is nothing to save
};

/// Counts SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 from now on instead of dying of them; the
/// third ends the process at once with 128 + n. Without it they end the process as usual. Forgets
/// earlier ones. A SIGHUP that was ignored stays so.
void CatchStopSignals(StopNotice notice = StopNotice::kSaves);
/// Says on stderr what asking for the `times`th time does. Async-signal-safe.
void SayWhatStops(int times, StopNotice notice = StopNotice::kSaves);
/// From now on they end the process as usual again.
void ReleaseStopSignals();

/// Whether the process was started to outlive its terminal, as by nohup.
bool IgnoresHangUp();

StopLevel RequestedStop();
/// 128 + the number of the first signal that came; 0 if none did, and where the process that
/// started these ranks gives the exit code.
int StopExitCode();
/// Whether it was the scheduler that asked: a run whose state is saved then ends with
/// kRequeueExitCode, to be started again.
bool StoppedByScheduler();
inline constexpr int kRequeueExitCode = 85;

/// Writing past a file size limit becomes an error of that write instead of the process's end.
void IgnoreFileSizeSignal();

}  // namespace trimtab
