#include "profiler/leave.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <thread>

#include "profiler/worker.h"

namespace trimtab {
namespace {

constexpr int kStayed = 17;

std::string FreshPath(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name;
  std::filesystem::remove(path);
  return path;
}

bool IsHeld(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  const bool held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
  if (fd >= 0) close(fd);
  return held;
}

/// Another process, which does not leave by itself for five minutes. Returns when it holds the
/// file.
pid_t StartWorker(const std::string& path, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    std::this_thread::sleep_for(std::chrono::seconds(300));
    std::_Exit(kStayed);
  }
  while (!IsHeld(path)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return child;
}

int ExitCodeOf(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Leave, AWorkerThatHearsNothingLeavesWhenItIsAsked) {
  const std::string path = FreshPath("deaf");
  std::array<int, 2> silence{};
  ASSERT_EQ(pipe(silence.data()), 0);
  const pid_t worker = StartWorker(path, [&] {
    dup2(silence[0], STDIN_FILENO);
    RunWorker(path, std::cin, TrainingVisits({}, {}));
  });
  EXPECT_TRUE(WorkersGone(path, 200));
  EXPECT_EQ(ExitCodeOf(worker), 1);
  EXPECT_FALSE(std::filesystem::exists(path + ".leave")) << "later workers may stay";
}

TEST(Leave, AVisitMayEndBefore) {
  const std::string path = FreshPath("visiting");
  const pid_t worker = StartWorker(path, [&path] {
    ResultsFile results(path);
    LeaveWatch watch(path);
    watch.SetVisiting(true);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    results.Append({.attempt = "a-1", .state = TrialState::kFailed});
    watch.SetVisiting(false);
    std::this_thread::sleep_for(std::chrono::seconds(300));
  });
  EXPECT_TRUE(WorkersGone(path, 200));
  EXPECT_EQ(ExitCodeOf(worker), 1);
  EXPECT_EQ(ReadResults(path).size(), 1u);
}

TEST(Leave, AVisitThatDoesNotEndIsGivenUp) {
  const std::string path = FreshPath("hanging");
  const pid_t worker = StartWorker(path, [&path] {
    const ResultsFile results(path);
    LeaveWatch watch(path);
    watch.SetVisiting(true);
    std::this_thread::sleep_for(std::chrono::seconds(300));
  });
  EXPECT_TRUE(WorkersGone(path, 200));
  EXPECT_EQ(ExitCodeOf(worker), 1);
}

}  // namespace
}  // namespace trimtab
