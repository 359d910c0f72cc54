// Table: aligned columns of plain text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trimtab {

enum class Align { kLeft, kRight };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// As many cells as columns.
  void AddRow(std::vector<std::string> cells);
  /// Takes out those of the columns with `titles` whose cells are all equal, of two rows or more.
  /// Returns what they hold: "precision fp8".
  std::vector<std::string> TakeUniform(const std::vector<std::string>& titles);

  /// Title line and rows, two spaces between columns, no trailing blanks. `bold` marks the titles.
  /// A table that is wider than kMostColumns has its widest titles, and then its widest
  /// left-aligned columns, wrapped.
  std::string ToText(bool bold) const;

 private:
  std::vector<size_t> Widths() const;
  /// The width to reduce next, of a title that is wider than its cells, `of_cells`, or else of a
  /// left-aligned column; null if there is none.
  size_t* WidestToNarrow(const std::vector<size_t>& of_cells, std::vector<size_t>& widths) const;
  std::vector<std::string> LinesOf(const std::vector<std::string>& cells,
                                   const std::vector<size_t>& widths, bool at_bottom) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// "name   value" lines, the values aligned and wrapped.
std::string KeyValueText(const std::vector<std::pair<std::string, std::string>>& rows);

}  // namespace trimtab
