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
  /// Title line and rows, two spaces between columns, no trailing blanks. `bold` marks the titles.
  std::string ToText(bool bold) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// "name   value" lines, the values aligned.
std::string KeyValueText(const std::vector<std::pair<std::string, std::string>>& rows);

/// 1234567 -> "1,234,567".
std::string Thousands(int64_t value);

/// 124475904 -> "124M" with three digits; 15e12 -> "15T", 14370 -> "14,370", 7.5 -> "7.5".
std::string ShortCount(double value, int digits = 4);

/// "1 step", "1,200 steps".
std::string Counted(int64_t count, const std::string& noun);

}  // namespace trimtab
