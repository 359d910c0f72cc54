#include "profiler/leave.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{500};
constexpr std::chrono::seconds kForAVisit{15};

std::string PathOf(const std::string& results_path) { return results_path + ".leave"; }

}  // namespace

LeaveRequest::LeaveRequest(const std::string& results_path) : path_(PathOf(results_path)) {
  if (!std::ofstream(path_)) throw StorageError(fmt::format("{}: cannot be written", path_));
}

LeaveRequest::~LeaveRequest() {
  std::error_code ignored;  // who finds it later asks the same
  std::filesystem::remove(path_, ignored);
}

LeaveWatch::LeaveWatch(const std::string& results_path)
    : path_(PathOf(results_path)), thread_([this](const std::stop_token& stop) { Watch(stop); }) {}

void LeaveWatch::Watch(const std::stop_token& stop) const {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  auto last_unasked = std::chrono::steady_clock::now();
  while (!stopped.wait_for(lock, stop, kBetweenLooks, [&stop] { return stop.stop_requested(); })) {
    std::error_code unknown;  // is no request
    const auto now = std::chrono::steady_clock::now();
    if (!std::filesystem::exists(path_, unknown)) {
      last_unasked = now;
    } else if (!visiting_ || now - last_unasked >= kForAVisit) {
      fmt::print(stderr, "a search that goes on asked this worker of an earlier one to leave\n");
      std::_Exit(static_cast<int>(ExitCode::kInternal));
    }
  }
}

}  // namespace trimtab
