#include "profiler/launch/command_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "engine/base/error.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostBytes = 1 << 20;

/// This process's environment, in the C locale: what schedulers print must not be translated.
std::vector<std::string> Environment() {
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with("LC_") && !text.starts_with("LANG")) environment.emplace_back(text);
  }
  environment.emplace_back("LC_ALL=C");
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipe {
  int read = -1;
  int write = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == 0) read = ends[0], write = ends[1];
  }
  ~Pipe() {
    CloseWrite();
    if (read >= 0) close(read);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void CloseWrite() {
    if (write >= 0) close(write);
    write = -1;
  }
};

pid_t Start(std::vector<std::string> argv, const Pipe& out, const Pipe& error) {
  std::vector<std::string> environment = Environment();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error.write, STDERR_FILENO);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0].c_str(), &actions, nullptr, Pointers(argv).data(),
                                  Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    throw EnvironmentError(fmt::format("cannot start {}: {}", argv[0], std::strerror(failed)));
  }
  return child;
}

/// Reads what is there. False at the end of the pipe.
bool Drain(int fd, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t count = read(fd, buffer.data(), buffer.size());
  if (count < 0 && errno == EINTR) return true;
  if (count <= 0) return false;
  text.append(buffer.data(), std::min(static_cast<size_t>(count), kMostBytes - text.size()));
  return true;
}

}  // namespace

CommandOutput ReadCommand(const std::vector<std::string>& argv, double limit_s) {
  CommandOutput output;
  Pipe out;
  Pipe error;
  const pid_t child = Start(argv, out, error);
  out.CloseWrite();
  error.CloseWrite();
  const auto deadline = Clock::now() + std::chrono::duration<double>(limit_s);
  const auto left_ms = [&deadline] {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
  };
  std::array<pollfd, 2> pipes = {pollfd{out.read, POLLIN, 0}, pollfd{error.read, POLLIN, 0}};
  while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
    const int ready = poll(pipes.data(), pipes.size(), left_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    if (pipes[0].revents != 0 && !Drain(out.read, output.out)) pipes[0].fd = -1;
    if (pipes[1].revents != 0 && !Drain(error.read, output.error)) pipes[1].fd = -1;
  }
  int status = 0;
  bool killed = false;
  while (waitpid(child, &status, killed ? 0 : WNOHANG) == 0) {
    if (Clock::now() >= deadline) {
      kill(child, SIGKILL);
      killed = true;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (killed) return output;
  output.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return output;
}

std::string FirstLine(const std::string& text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") != std::string::npos) return line;
    begin = end + 1;
  }
  return "";
}

}  // namespace trimtab
