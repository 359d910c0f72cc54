#include "profiler/launch/log_tail.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace trimtab {
namespace {

constexpr int64_t kMaxTailBytes = 4096;
constexpr size_t kMaxMessageBytes = 400;

}  // namespace

int64_t LogBytes(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

std::string LogTail(const std::string& path, int64_t offset) {
  std::ifstream log(path, std::ios::binary);
  log.seekg(std::max(offset, LogBytes(path) - kMaxTailBytes));
  return {std::istreambuf_iterator<char>(log), std::istreambuf_iterator<char>()};
}

std::string LogHead(const std::string& path, int64_t offset) {
  std::ifstream log(path, std::ios::binary);
  log.seekg(offset);
  std::string text(kMaxTailBytes, '\0');
  log.read(text.data(), kMaxTailBytes);
  text.resize(static_cast<size_t>(log.gcount()));
  return text;
}

std::string LastLogLine(const std::string& path, int64_t offset) {
  std::istringstream log(LogTail(path, offset));
  std::string line;
  std::string last;
  while (std::getline(log, line)) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  return last.substr(0, kMaxMessageBytes);
}

}  // namespace trimtab
