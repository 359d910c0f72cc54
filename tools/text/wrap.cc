#include "tools/text/wrap.h"

#include <algorithm>

namespace trimtab {
namespace {

/// Finds where the last column of `line` begins, within its first half; 0 if there is one column.
size_t LastColumn(std::string_view line, size_t width) {
  size_t column = line.find_first_not_of(' ');
  if (column == std::string_view::npos) return 0;
  while (true) {
    const size_t gap = line.find("  ", column);
    if (gap == std::string_view::npos) return column;
    const size_t next = line.find_first_not_of(' ', gap);
    if (next == std::string_view::npos || DisplayWidth(line.substr(0, next)) > width / 2) {
      return column;
    }
    column = next;
  }
}

void AppendWrapped(std::string_view line, size_t width, std::string& text) {
  const size_t column = LastColumn(line, width);
  const size_t indent = DisplayWidth(line.substr(0, column));
  text += line.substr(0, column);
  bool first = true;
  for (const std::string& part : WrapWords(line.substr(column), width - indent)) {
    if (!first) text.append(1, '\n').append(indent, ' ');
    first = false;
    text += part;
  }
}

}  // namespace

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::vector<std::string> WrapWords(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (!line.empty() && DisplayWidth(line) + 1 + DisplayWidth(word) > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty() || lines.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string WrapColumns(std::string_view text, size_t width) {
  std::string wrapped;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (DisplayWidth(line) > width) {
      AppendWrapped(line, width, wrapped);
    } else {
      wrapped += line;
    }
    if (end < text.size()) wrapped += '\n';
    at = end + 1;
  }
  return wrapped;
}

}  // namespace trimtab
