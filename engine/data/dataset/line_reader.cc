#include "engine/data/dataset/line_reader.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;

}  // namespace

LineReader::LineReader(const std::string& path, LineCheck check, std::string expected,
                       bool name_line)
    : path_(path),
      check_(check),
      expected_(std::move(expected)),
      name_line_(name_line),
      buffer_(kBufferBytes) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw InputError(fmt::format("{}: is a folder; expected a file", path));
  }
  errno = 0;
  stream_.open(path, std::ios::binary);
  if (!stream_) throw InputError(fmt::format("{}: cannot open it: {}", path, std::strerror(errno)));
}

bool LineReader::Next(std::string& line, bool& ended) {
  line.clear();
  ended = false;
  if (unread_.empty() && !Fill()) return false;
  ++number_;
  do {
    const size_t newline = unread_.find('\n');
    ended = newline != std::string_view::npos;
    const std::string_view piece = unread_.substr(0, ended ? newline + 1 : newline);
    Check(piece);
    line += piece;
    unread_.remove_prefix(piece.size());
  } while (!ended && (!unread_.empty() || Fill()));
  if (ended) line.pop_back();
  return true;
}

std::string LineReader::where() const { return fmt::format("{}:{}", path_, number_); }

/// Reads the next bytes of the file; false at its end.
bool LineReader::Fill() {
  stream_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  if (stream_.bad()) throw InputError(fmt::format("{}: cannot read it", path_));
  unread_ = {buffer_.data(), static_cast<size_t>(stream_.gcount())};
  if (unread_.empty() && check_ == LineCheck::kUtf8 && !checker_.Finish()) Refuse();
  return !unread_.empty();
}

void LineReader::Check(std::string_view piece) {
  if (check_ == LineCheck::kUtf8 && !checker_.Add(piece)) Refuse();
}

void LineReader::Refuse() const {
  throw InputError(fmt::format("{}: {} at byte {} of the file; expected {}",
                               name_line_ ? where() : path_, checker_.fault(),
                               checker_.fault_offset(), expected_));
}

}  // namespace trimtab
