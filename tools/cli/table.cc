#include "tools/cli/table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/error.h"
#include "engine/config/json/text_values.h"
#include "tools/text/wrap.h"

namespace trimtab {
namespace {

// Columns of text are not made narrower than this.
constexpr size_t kNarrowest = 8;

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  TRIMTAB_ASSERT(cells.size() == columns_.size(), "{} cells in {} columns", cells.size(),
                 columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<std::string> Table::TakeUniform(const std::vector<std::string>& titles) {
  std::vector<std::string> taken;
  for (const std::string& title : titles) {
    const auto column = std::ranges::find(columns_, title, &Column::title);
    if (column == columns_.end() || rows_.size() < 2) continue;
    const auto i = column - columns_.begin();
    const auto cell = [i](const auto& row) { return row[static_cast<size_t>(i)]; };
    const std::string value = cell(rows_.front());
    if (!std::ranges::all_of(rows_, [&](const auto& row) { return cell(row) == value; })) continue;
    taken.push_back(title + " " + value);
    columns_.erase(column);
    for (auto& row : rows_) row.erase(row.begin() + i);
  }
  return taken;
}

std::vector<size_t> Table::Widths() const {
  std::vector<size_t> widths;
  std::vector<size_t> of_cells;  // and of the longest word of the title
  size_t total = columns_.empty() ? 0 : 2 * (columns_.size() - 1);
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = 0;
    for (const std::string& word : Split(columns_[i].title, ' ')) {
      width = std::max(width, DisplayWidth(word));
    }
    for (const auto& row : rows_) width = std::max(width, DisplayWidth(row[i]));
    of_cells.push_back(width);
    widths.push_back(std::max(width, DisplayWidth(columns_[i].title)));
    total += widths.back();
  }
  for (; total > kMostColumns; --total) {
    size_t* const widest = WidestToNarrow(of_cells, widths);
    if (widest == nullptr) break;
    --*widest;
  }
  return widths;
}

size_t* Table::WidestToNarrow(const std::vector<size_t>& of_cells,
                              std::vector<size_t>& widths) const {
  size_t* widest = nullptr;
  const auto consider = [&](size_t i, bool narrows) {
    if (narrows && (widest == nullptr || widths[i] > *widest)) widest = &widths[i];
  };
  for (size_t i = 0; i < widths.size(); ++i) consider(i, widths[i] > of_cells[i]);
  if (widest != nullptr) return widest;
  for (size_t i = 0; i < widths.size(); ++i) {
    consider(i, columns_[i].align == Align::kLeft && widths[i] > kNarrowest);
  }
  return widest;
}

std::string Table::ToText(bool bold) const {
  const std::vector<size_t> widths = Widths();
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::string text;
  for (const std::string& line : LinesOf(titles, widths, /*at_bottom=*/true)) {
    text += bold ? "\x1b[1m" + line + "\x1b[0m\n" : line + "\n";
  }
  for (const auto& row : rows_) {
    for (const std::string& line : LinesOf(row, widths, /*at_bottom=*/false)) text += line + "\n";
  }
  return text;
}

std::vector<std::string> Table::LinesOf(const std::vector<std::string>& cells,
                                        const std::vector<size_t>& widths, bool at_bottom) const {
  std::vector<std::vector<std::string>> parts;
  size_t height = 1;
  for (size_t i = 0; i < cells.size(); ++i) {
    parts.push_back(DisplayWidth(cells[i]) > widths[i] ? WrapWords(cells[i], widths[i])
                                                       : std::vector{cells[i]});
    height = std::max(height, parts.back().size());
  }
  std::vector<std::string> lines(height);
  for (size_t row = 0; row < height; ++row) {
    for (size_t i = 0; i < cells.size(); ++i) {
      const size_t above = at_bottom ? height - parts[i].size() : 0;
      const bool filled = row >= above && row - above < parts[i].size();
      if (i > 0) lines[row] += "  ";
      const std::string part = filled ? parts[i][row - above] : "";
      lines[row] +=
          columns_[i].align == Align::kLeft ? PadRight(part, widths[i]) : PadLeft(part, widths[i]);
    }
    while (lines[row].ends_with(' ')) lines[row].pop_back();
  }
  return lines;
}

std::string KeyValueText(const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, DisplayWidth(row.first));
  std::string text;
  for (const auto& [name, value] : rows) {
    std::string beside = value.empty() ? name : PadRight(name, width) + "  ";
    const bool fits = width + 2 + DisplayWidth(value) <= kMostColumns;
    for (const std::string& part :
         fits ? std::vector{value} : WrapWords(value, kMostColumns - width - 2)) {
      text += beside + part + "\n";
      beside = std::string(width + 2, ' ');
    }
  }
  return text;
}

}  // namespace trimtab
