#include "engine/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "engine/base/error.h"

namespace trimtab {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("trimtab",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("[%H:%M:%S] %v");
    return made;
  }();
  return *logger;
}

}  // namespace

void ConfigureLog(LogLevel level, const std::string& file) {
  spdlog::logger& logger = Logger();
  logger.set_level(ToSpdlog(level));
  if (file.empty()) return;
  // The library would make folders, of a mistyped name too.
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    throw StorageError(fmt::format("--log-file {}: there is no folder {}", file, folder.string()));
  }
  if (std::filesystem::is_directory(file, ignored)) {
    throw StorageError(fmt::format("--log-file {}: is a folder; expected a file", file));
  }
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
    sink->set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%l] %v");
    logger.sinks().push_back(sink);
    logger.flush_on(spdlog::level::debug);
  } catch (const spdlog::spdlog_ex&) {
    // The library's text names the file again, and itself.
    throw StorageError(
        fmt::format("--log-file {}: cannot write it: {}", file, std::strerror(errno)));
  }
}

void LogLine(LogLevel level, const std::string& line) { Logger().log(ToSpdlog(level), line); }

}  // namespace trimtab
