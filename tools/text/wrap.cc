#include "tools/text/wrap.h"

#include <algorithm>

namespace trimtab {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// Returns the blanks that `text` lacks to `width` columns.
std::string Blanks(std::string_view text, size_t width) {
  return std::string(width - std::min(width, DisplayWidth(text)), ' ');
}

/// Finds where the last column of `line` begins, within its first half; its first character if it
/// has one column.
size_t LastColumn(std::string_view line, size_t width) {
  size_t column = std::min(line.find_first_not_of(' '), line.size());
  while (true) {
    const size_t gap = line.find("  ", column);
    const size_t next = line.find_first_not_of(' ', gap);
    if (next == std::string_view::npos || DisplayWidth(line.substr(0, next)) > width / 2) {
      return column;
    }
    column = next;
  }
}

/// The bytes of `word` that fit into `width` columns, up to a separator if there is one.
size_t BytesThatFit(std::string_view word, size_t width) {
  size_t bytes = 0;
  size_t separated = 0;
  for (size_t columns = 0; bytes < word.size(); ++bytes) {
    columns += IsContinuation(word[bytes]) ? 0 : 1;
    if (columns > width) break;
    if (std::string_view(",+/").find(word[bytes]) != std::string_view::npos) separated = bytes + 1;
  }
  if (bytes == word.size()) return bytes;
  return separated > 0 ? separated : std::max<size_t>(bytes, 1);
}

void AppendWrapped(std::string_view line, size_t width, std::string& text) {
  const size_t column = LastColumn(line, width);
  // A line of one column goes on a little further in.
  const bool first_column = column == std::min(line.find_first_not_of(' '), line.size());
  const size_t indent = DisplayWidth(line.substr(0, column)) + (first_column ? 2 : 0);
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
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("\x1b[")) {
      i = std::min(text.find('m', i), text.size());
    } else if (!IsContinuation(text[i])) {
      ++width;
    }
  }
  return width;
}

std::string PadRight(const std::string& text, size_t width) { return text + Blanks(text, width); }

std::string PadLeft(const std::string& text, size_t width) { return Blanks(text, width) + text; }

std::vector<std::string> WrapWords(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (!line.empty() && DisplayWidth(line) + 1 + DisplayWidth(word) > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    while (line.empty() && DisplayWidth(word) > width) {
      const size_t bytes = BytesThatFit(word, width);
      lines.emplace_back(word.substr(0, bytes));
      word.remove_prefix(bytes);
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
