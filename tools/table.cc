#include "tools/table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/error.h"
#include "tools/text/wrap.h"

namespace trimtab {
namespace {

std::string Pad(const std::string& text, size_t width, Align align) {
  const std::string blanks(width - std::min(width, DisplayWidth(text)), ' ');
  return align == Align::kLeft ? text + blanks : blanks + text;
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  TRIMTAB_ASSERT(cells.size() == columns_.size(), "{} cells in {} columns", cells.size(),
                 columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::ToText(bool bold) const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = DisplayWidth(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, DisplayWidth(row[i]));
    widths.push_back(width);
  }
  const auto line = [&](const auto& cell) {
    std::string text;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) text += "  ";
      text += Pad(cell(i), widths[i], columns_[i].align);
    }
    while (text.ends_with(' ')) text.pop_back();
    return text;
  };
  const std::string titles = line([&](size_t i) { return columns_[i].title; });
  std::string text = bold ? "\x1b[1m" + titles + "\x1b[0m\n" : titles + "\n";
  for (const auto& row : rows_) text += line([&](size_t i) { return row[i]; }) + "\n";
  return text;
}

std::string KeyValueText(const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, DisplayWidth(row.first));
  std::string text;
  for (const auto& row : rows) {
    text +=
        row.second.empty() ? row.first : Pad(row.first, width, Align::kLeft) + "  " + row.second;
    text += '\n';
  }
  return text;
}

std::string Thousands(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string ShortCount(double value, int digits) {
  constexpr std::pair<double, char> kScales[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}};
  for (const auto& [scale, letter] : kScales) {
    if (value >= scale) return fmt::format("{:.{}g}{}", value / scale, digits, letter);
  }
  return value >= 1000 ? Thousands(std::llround(value)) : fmt::format("{:.{}g}", value, digits);
}

std::string Counted(int64_t count, const std::string& noun) {
  return Thousands(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace trimtab
