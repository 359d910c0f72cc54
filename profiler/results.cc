#include "profiler/results.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/name_table.h"
#include "engine/base/units.h"
#include "profiler/leave.h"

namespace trimtab {
namespace {

constexpr int kSchemaVersion = 1;
constexpr int64_t kMaxFileBytes = kGiB;
constexpr double kSharedLockWaitSeconds = 5;

constexpr std::array<Named<TrialState>, 10> kStateNames = {{
    {TrialState::kDone, "done"},
    {TrialState::kOutOfMemory, "out_of_memory"},
    {TrialState::kNumeric, "numeric"},
    {TrialState::kCrashed, "crashed"},
    {TrialState::kTimedOut, "timed_out"},
    {TrialState::kFailed, "failed"},
    {TrialState::kLost, "lost"},
    {TrialState::kPreempted, "preempted"},
    {TrialState::kCancelled, "cancelled"},
    {TrialState::kInterrupted, "interrupted"},
}};
constexpr std::string_view kStarted = "started";  // of a line that is no result

[[noreturn]] void ThrowStorage(const std::string& path, const char* what, int error) {
  throw StorageError(fmt::format("{}: cannot {}: {}", path, what, std::strerror(error)));
}

std::string ToLine(const TrialResult& result) {
  nlohmann::json line = {{"schema_version", kSchemaVersion},
                         {"attempt", result.attempt},
                         {"state", Name(result.state)},
                         {"message", result.message}};
  if (result.measurement) line["measurement"] = ToJson(*result.measurement);
  // Messages quote file names and output of any bytes: what is not UTF-8 is replaced.
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

/// nullopt for a line that is not a whole result.
std::optional<TrialResult> FromLine(std::string_view text) {
  const nlohmann::json line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    if (line.at("schema_version") != kSchemaVersion) return std::nullopt;
    TrialResult result;
    line.at("attempt").get_to(result.attempt);
    line.at("message").get_to(result.message);
    result.state = ParseTrialState(line.at("state").get<std::string>());
    if (line.contains("measurement")) {
      result.measurement = MeasurementFromJson(line.at("measurement"), "line");
    }
    if (result.measurement.has_value() != (result.state == TrialState::kDone)) return std::nullopt;
    if (result.measurement && !WhyNotNumeric(*result.measurement).empty()) return std::nullopt;
    return result;
  } catch (const nlohmann::json::exception&) {  // also thrown where `line` is not an object
    return std::nullopt;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

std::string Name(TrialState state) { return std::string(NameIn(kStateNames, state)); }

TrialState ParseTrialState(const std::string& name) {
  if (const auto state = FindNamed(kStateNames, name)) return *state;
  throw InputError(fmt::format("\"{}\" is not the state of a trial", name));
}

namespace {

/// Opens and locks the file; its descriptor, or -1 where others hold it longer than `wait_s`.
/// `operation` is LOCK_SH or LOCK_EX.
int TryOpenLocked(const std::string& path, int operation, double wait_s) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) ThrowStorage(path, "open", errno);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_s);
  while (flock(fd, operation | LOCK_NB) != 0) {
    const int error = errno;
    const bool retry = error == EWOULDBLOCK || error == EINTR;
    if (retry && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    close(fd);
    if (!retry) ThrowStorage(path, "lock", error);
    return -1;
  }
  return fd;
}

[[noreturn]] void ThrowHeld(const std::string& path) {
  throw StorageError(fmt::format("{}: a trial of another search is still running", path));
}

int OpenLocked(const std::string& path, int operation, double wait_s) {
  const int fd = TryOpenLocked(path, operation, wait_s);
  if (fd < 0) ThrowHeld(path);
  return fd;
}

}  // namespace

ResultsFile::ResultsFile(std::string path)
    : path_(std::move(path)), fd_(OpenLocked(path_, LOCK_SH, kSharedLockWaitSeconds)) {}

bool WorkersGone(const std::string& path, double wait_s) {
  int fd = TryOpenLocked(path, LOCK_EX, 0);
  if (fd < 0) {
    const LeaveRequest request(path);
    fd = TryOpenLocked(path, LOCK_EX, wait_s);
  }
  if (fd >= 0) close(fd);
  return fd >= 0;
}

void AwaitWorkersGone(const std::string& path, double wait_s) {
  if (!WorkersGone(path, wait_s)) ThrowHeld(path);
}

ResultsFile::~ResultsFile() { close(fd_); }

void ResultsFile::Append(const TrialResult& result) { AppendLine(ToLine(result)); }

void ResultsFile::AppendStart(const std::string& attempt) {
  const nlohmann::json line = {
      {"schema_version", kSchemaVersion}, {"attempt", attempt}, {"state", kStarted}};
  AppendLine(line.dump() + "\n");
}

void ResultsFile::AppendLine(std::string line) {
  struct stat status {};
  if (fstat(fd_, &status) != 0) ThrowStorage(path_, "read", errno);
  if (status.st_size > 0) {
    char last = '\n';
    if (pread(fd_, &last, 1, status.st_size - 1) != 1) ThrowStorage(path_, "read", errno);
    if (last != '\n') line.insert(line.begin(), '\n');
  }
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = write(fd_, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error = count < 0 ? errno : ENOSPC;
      // Best effort: a torn line would be skipped by readers anyway.
      [[maybe_unused]] const int ignored = ftruncate(fd_, status.st_size);
      ThrowStorage(path_, "append a result", error);
    }
    written += static_cast<size_t>(count);
  }
  if (fsync(fd_) != 0) ThrowStorage(path_, "append a result", errno);
}

namespace {

/// The finished lines of `path`; none where there is no such file.
std::vector<std::string> ReadLines(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  std::string text;
  try {
    text = ReadTextFile(path, kMaxFileBytes);
  } catch (const InputError& failure) {
    throw StorageError(failure.what());
  }
  std::vector<std::string> lines;
  for (size_t begin = 0;;) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) return lines;  // what follows the last newline is torn
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace

bool HasStarted(const std::string& path, const std::string& attempt) {
  const std::vector<std::string> lines = ReadLines(path);
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& text) {
    const nlohmann::json line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    return line.is_object() && line.value("attempt", nlohmann::json()) == attempt &&
           line.value("state", nlohmann::json()) == kStarted;
  });
}

std::vector<TrialResult> ReadResults(const std::string& path) {
  std::vector<TrialResult> results;
  for (const std::string& line : ReadLines(path)) {
    if (auto result = FromLine(line)) results.push_back(std::move(*result));
  }
  return results;
}

}  // namespace trimtab
