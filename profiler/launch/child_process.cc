#include "profiler/launch/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "profiler/launch/process_states.h"

namespace trimtab {
namespace {

// Between tries to start a process where there are too many.
constexpr std::chrono::milliseconds kFirstForkPause{100};
constexpr std::chrono::milliseconds kLastForkPause{3200};

/// A file descriptor that is closed when it goes away.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Close(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

/// In the child, between fork and exec: async-signal-safe calls only, and never returns. Reports
/// errno of a failed exec through `report_fd`, which a successful exec closes.
[[noreturn]] void Become(const char* program, char* const* argv, int stdin_fd, int log_fd,
                         int report_fd, pid_t driver) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != driver) _exit(126);  // it died before the line above took effect
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int oom_fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (oom_fd >= 0) {
    [[maybe_unused]] const ssize_t ignored = write(oom_fd, "1000", 4);
  }
  dup2(stdin_fd, STDIN_FILENO);
  dup2(log_fd, STDOUT_FILENO);
  dup2(log_fd, STDERR_FILENO);
  execv(program, argv);
  const int error = errno;
  [[maybe_unused]] const ssize_t ignored = write(report_fd, &error, sizeof(error));
  _exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const std::string& program, const std::vector<std::string>& arguments,
                           const std::string& log_path) {
  const Fd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log.get() < 0) {
    throw StorageError(fmt::format("{}: cannot open: {}", log_path, std::strerror(errno)));
  }
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  const auto refuse = [&](int error) {
    throw EnvironmentError(fmt::format("cannot start {}: {}", program, std::strerror(error)));
  };
  // A socket, not a pipe: telling a child that has ended must not raise SIGPIPE.
  int line[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) != 0) refuse(errno);
  Fd ours(line[0]);
  Fd theirs(line[1]);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) refuse(errno);
  const Fd report_read(ends[0]);
  Fd report_write(ends[1]);
  const pid_t driver = getpid();
  pid_t child = fork();
  // Other processes end, and leave room for this one.
  for (auto pause = kFirstForkPause; child < 0 && errno == EAGAIN && pause <= kLastForkPause;
       pause *= 2) {
    std::this_thread::sleep_for(pause);
    child = fork();
  }
  if (child < 0) refuse(errno);
  if (child == 0) {
    Become(program.c_str(), argv.data(), theirs.get(), log.get(), report_write.get(), driver);
  }
  setpgid(child, child);  // here too: whoever is first, the group exists before it is killed
  report_write.Close();
  theirs.Close();
  int error = 0;
  ssize_t count = 0;
  do {
    count = read(report_read.get(), &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  if (count == sizeof(error)) {
    waitpid(child, nullptr, 0);
    refuse(error);
  }
  pid_ = child;
  stdin_ = ours.Release();
}

ChildProcess::~ChildProcess() {
  Kill();
  Wait();
}

void ChildProcess::Tell(const std::string& line) {
  const std::string text = line + "\n";
  // A line is far smaller than a socket's buffer, so it goes whole or not at all.
  [[maybe_unused]] const ssize_t ignored = send(stdin_, text.data(), text.size(), MSG_NOSIGNAL);
}

void ChildProcess::Hush() {
  if (stdin_ >= 0) close(stdin_);
  stdin_ = -1;
}

bool ChildProcess::HasEnded() const {
  if (pid_ == 0) return true;
  siginfo_t info{};
  // Leaves it a zombie: until it is reaped, its id is still its own.
  waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  return info.si_pid == pid_;
}

std::string ChildProcess::Doing() const { return pid_ == 0 ? "" : DescribeProcesses(pid_); }

void ChildProcess::Kill() {
  if (pid_ != 0) kill(-pid_, SIGKILL);
}

ChildExit ChildProcess::Wait() {
  Hush();
  if (pid_ == 0) return exit_;
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  Kill();
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  exit_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  exit_.exit_code = WIFSIGNALED(status) ? 128 + exit_.signal : WEXITSTATUS(status);
  return exit_;
}

}  // namespace trimtab
