// The lines of a text file, checked while they are read.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/dataset/utf8.h"

namespace trimtab {

enum class LineCheck { kNone, kUtf8 };

class LineReader {
 public:
  /// Throws InputError when `path` is not a file that can be opened. `expected` ends the message
  /// of a fault found later, which names the line only if `name_line` is set.
  LineReader(const std::string& path, LineCheck check, std::string expected, bool name_line);

  /// Reads the next line, without its newline; false at the end of the file. `ended` says whether
  /// the line had a newline. Throws InputError when the file cannot be read, or at the first byte
  /// that is not text, before the rest of the line is read.
  bool Next(std::string& line, bool& ended);

  /// "FILE:LINE" of the line last read, for messages.
  std::string where() const;

 private:
  bool Fill();
  void Check(std::string_view piece);
  [[noreturn]] void Refuse() const;

  std::string path_;
  LineCheck check_;
  std::string expected_;
  bool name_line_;
  std::ifstream stream_;
  std::vector<char> buffer_;
  std::string_view unread_;  // of the buffer
  Utf8Checker checker_;
  int64_t number_ = 0;
};

}  // namespace trimtab
