#include "engine/base/io/isolated_call.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

/// What the child is before the work begins: silent, without a core file, and mortal.
void Prepare() {
  const int null = ::open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  const rlimit no_core = {0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) std::signal(number, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it does not outlive a parent that is killed
}

[[noreturn]] void RunChild(const std::function<std::string()>& work, int pipe) {
  Prepare();
  int status = 1;
  try {
    const std::string text = work();
    size_t written = 0;
    while (written < text.size()) {
      const ssize_t count = ::write(pipe, text.data() + written, text.size() - written);
      if (count < 0) ::_exit(status);
      written += static_cast<size_t>(count);
    }
    status = 0;
  } catch (...) {
    // The exit status says so.
  }
  ::_exit(status);  // no destructors, no atexit: they belong to the parent
}

}  // namespace

IsolatedCall::IsolatedCall(const std::function<std::string()>& work) {
  std::array<int, 2> ends = {-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0 || (child_ = ::fork()) < 0) {
    failure_ = fmt::format("cannot start a process: {}", std::strerror(errno));
    for (const int fd : ends) ::close(fd);
    return;
  }
  if (child_ == 0) RunChild(work, ends[1]);
  ::close(ends[1]);
  pipe_ = ends[0];
}

IsolatedCall::~IsolatedCall() {
  if (child_ > 0) Reap(/*kill_it=*/true);
  if (pipe_ >= 0) ::close(pipe_);
}

IsolatedCall::Result IsolatedCall::Wait(Clock::time_point deadline) {
  if (child_ < 0) return {.failure = failure_};
  std::string text;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd poll = {pipe_, POLLIN, 0};
    const int ready = ::poll(&poll, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      Reap(/*kill_it=*/true);
      return {.failure = "it did not answer in time"};
    }
    std::array<char, 4096> buffer = {};
    const ssize_t count = ::read(pipe_, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  const int status = Reap(/*kill_it=*/false);
  if (WIFSIGNALED(status)) {
    return {.failure = fmt::format("it crashed ({})", ::strsignal(WTERMSIG(status)))};
  }
  if (WEXITSTATUS(status) != 0) return {.failure = "it ended the process"};
  return {.text = std::move(text)};
}

int IsolatedCall::Reap(bool kill_it) {
  if (kill_it) ::kill(child_, SIGKILL);
  int status = 0;
  while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
  return status;
}

}  // namespace trimtab
