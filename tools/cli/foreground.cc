#include "tools/cli/foreground.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "engine/base/error.h"
#include "tools/cli/signals.h"

namespace trimtab {
namespace {

constexpr int kNotStarted = 127;

/// Only async-signal-safe calls.
[[noreturn]] void BecomeChild(const std::vector<char*>& argv, pid_t parent,
                              const sigset_t& before) {
  ::setpgid(0, 0);  // Ctrl-C reaches the parent alone
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kNotStarted);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  // A process in the background that reads from a terminal is stopped.
  if (::isatty(STDIN_FILENO) != 0) {
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  }
  ::execv(argv[0], argv.data());
  ::_exit(kNotStarted);
}

/// What asks the child to stop, by how often this process was asked.
void PassOn(int times, pid_t child) {
  if (times > 2) {
    ::kill(-child, SIGKILL);
    return;
  }
  SayWhatStops(times);
  ::kill(child, times == 1 ? SIGUSR1 : SIGTERM);
}

}  // namespace

int RunInForeground(std::vector<std::string> argv) {
  std::vector<char*> words;
  for (std::string& word : argv) words.push_back(word.data());
  words.push_back(nullptr);
  std::signal(SIGCHLD, SIG_DFL);  // who ignores it is told of no child's end
  sigset_t signals;
  sigset_t before;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR2, SIGCHLD}) ::sigaddset(&signals, signal);
  if (!IgnoresHangUp()) ::sigaddset(&signals, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) BecomeChild(words, parent, before);
  if (child < 0) {
    throw EnvironmentError(fmt::format("cannot start {}: {}", argv[0], std::strerror(errno)));
  }
  int asked = 0;
  int first = 0;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    int signal = 0;
    if (::sigwait(&signals, &signal) != 0 || signal == SIGCHLD) continue;
    if (signal == SIGUSR2) {
      ::kill(child, signal);  // of a scheduler, for the ranks
      continue;
    }
    if (first == 0) first = signal;
    PassOn(++asked, child);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (first != 0 && (code == 0 || asked > 1)) return 128 + first;
  if (code == kNotStarted) throw EnvironmentError(fmt::format("cannot start {}", argv[0]));
  return code;
}

}  // namespace trimtab
