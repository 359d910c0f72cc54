// Errors: what a broken run throws, and the exit code each kind ends the process with.
//
// Expected outcomes (a layout that breaks a rule, a trial that failed) are values, not exceptions.
// A programmer's fault is TRIMTAB_ASSERT, which stays on in release builds.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace trimtab {

/// Process exit codes of the `trimtab` command; 128+n stands for signal n.
enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,
  kBadInput = 3,
  kInfeasible = 4,
  kPartial = 5,
  kEnvironment = 6,
  kStorage = 7,
};

/// Base of every exception the project throws on purpose. `what()` is one clear line.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// A flag or argument that makes no sense.
struct UsageError : Error {
  explicit UsageError(const std::string& message) : Error(ExitCode::kUsage, message) {}
};

/// A file whose content is wrong. The message names the file and, in JSON, the path.
struct InputError : Error {
  explicit InputError(const std::string& message) : Error(ExitCode::kBadInput, message) {}
};

/// A configuration that breaks a legality rule or cannot fit in memory.
struct InfeasibleError : Error {
  explicit InfeasibleError(const std::string& message) : Error(ExitCode::kInfeasible, message) {}
};

/// Driver, device, launcher or library missing on this machine.
struct EnvironmentError : Error {
  explicit EnvironmentError(const std::string& message) : Error(ExitCode::kEnvironment, message) {}
};

/// Disk full, unwritable path, corrupted study or checkpoint.
struct StorageError : Error {
  explicit StorageError(const std::string& message) : Error(ExitCode::kStorage, message) {}
};

/// An allocation passed the device's memory limit. Callers that try layouts treat it as a value.
struct OutOfMemoryError : InfeasibleError {
  using InfeasibleError::InfeasibleError;
};

[[noreturn]] void AssertFailed(const char* condition, const char* file, int line,
                               const std::string& message);

}  // namespace trimtab

/// Stops the process with file, line and message when a programmer's assumption does not hold.
#define TRIMTAB_ASSERT(condition, ...)                                                   \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      ::trimtab::AssertFailed(#condition, __FILE__, __LINE__, fmt::format(__VA_ARGS__)); \
    }                                                                                    \
  } while (false)
