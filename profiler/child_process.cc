#include "profiler/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "engine/base/error.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPollInterval = std::chrono::milliseconds(10);

/// A file descriptor that is closed when it goes away.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Close(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

/// In the child, between fork and exec: async-signal-safe calls only, and never returns. Reports
/// errno of a failed exec through `report_fd`, which a successful exec closes.
[[noreturn]] void Become(const char* program, char* const* argv, int null_fd, int log_fd,
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
  dup2(null_fd, STDIN_FILENO);
  dup2(log_fd, STDOUT_FILENO);
  dup2(log_fd, STDERR_FILENO);
  execv(program, argv);
  const int error = errno;
  [[maybe_unused]] const ssize_t ignored = write(report_fd, &error, sizeof(error));
  _exit(127);
}

/// Starts the child; its pid. Throws EnvironmentError when it does not get as far as `program`.
pid_t Start(const std::string& program, const std::vector<std::string>& arguments, int log_fd) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  const Fd null_fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  int ends[2];
  if (null_fd.get() < 0 || pipe2(ends, O_CLOEXEC) != 0) {
    throw EnvironmentError(fmt::format("cannot start {}: {}", program, std::strerror(errno)));
  }
  const Fd report_read(ends[0]);
  Fd report_write(ends[1]);
  const pid_t driver = getpid();
  const pid_t child = fork();
  if (child < 0) {
    throw EnvironmentError(fmt::format("cannot start {}: {}", program, std::strerror(errno)));
  }
  if (child == 0) {
    Become(program.c_str(), argv.data(), null_fd.get(), log_fd, report_write.get(), driver);
  }
  setpgid(child, child);  // here too: whoever is first, the group exists before it is killed
  report_write.Close();
  int error = 0;
  ssize_t count = 0;
  do {
    count = read(report_read.get(), &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  if (count == sizeof(error)) {
    waitpid(child, nullptr, 0);
    throw EnvironmentError(fmt::format("cannot start {}: {}", program, std::strerror(error)));
  }
  return child;
}

/// True once the child is a zombie; leaves it one.
bool HasEnded(pid_t child) {
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
  return info.si_pid == child;
}

}  // namespace

ChildExit RunChild(const std::string& program, const std::vector<std::string>& arguments,
                   const std::string& log_path, double time_limit_s,
                   const std::function<bool()>& cancelled) {
  const Fd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log.get() < 0) {
    throw StorageError(fmt::format("{}: cannot open: {}", log_path, std::strerror(errno)));
  }
  const Clock::time_point start = Clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const pid_t child = Start(program, arguments, log.get());

  ChildExit end;
  while (!HasEnded(child)) {
    if (!end.timed_out && !end.cancelled) {
      end.cancelled = cancelled && cancelled();
      end.timed_out = !end.cancelled && time_limit_s > 0 && elapsed_s() > time_limit_s;
      if (end.cancelled || end.timed_out) kill(-child, SIGKILL);
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  // Whatever the child started itself goes with it. Before it is reaped: its id is still its own.
  kill(-child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  end.seconds = elapsed_s();
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end.exit_code = WIFSIGNALED(status) ? 128 + end.signal : WEXITSTATUS(status);
  return end;
}

}  // namespace trimtab
