// How long `trimtab --help` takes, from fork to exit: what every use of the command pays.
//   bazel run //tests/tools:startup_benchmark

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace {

constexpr int kRuns = 101;
constexpr double kLimitMs = 30;

/// Milliseconds, or -1 when the program failed.
double RunOnce() {
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
    ::execl("tools/trimtab", "trimtab", "--help", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  return status == 0 ? taken.count() : -1;
}

}  // namespace

int main() {
  std::vector<double> times_ms;
  for (int i = 0; i < kRuns; ++i) {
    times_ms.push_back(RunOnce());
    if (times_ms.back() < 0) {
      fmt::print(stderr, "tools/trimtab --help failed; run this from the runfiles' root\n");
      return 1;
    }
  }
  std::sort(times_ms.begin(), times_ms.end());
  const double median = times_ms[kRuns / 2];
  fmt::print(
      "trimtab --help: median {:.1f} ms, most {:.1f} ms of {} runs; {:.2f} of the limit {} ms\n",
      median, times_ms.back(), kRuns, median / kLimitMs, kLimitMs);
  return 0;
}
