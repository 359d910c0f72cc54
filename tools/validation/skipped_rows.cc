#include "tools/validation/skipped_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <vector>

#include "tools/cli/table.h"

namespace trimtab {
namespace {

constexpr size_t kNamed = 2;  // of the rows with one reason; --json names all

std::string FirstIds(const std::vector<std::string>& ids) {
  const size_t named = std::min(ids.size(), kNamed);
  std::string text = fmt::format("{}", fmt::join(ids.begin(), ids.begin() + named, ", "));
  if (ids.size() > named) text += fmt::format(", {} more", ids.size() - named);
  return text;
}

}  // namespace

std::string SkippedRowsText(std::span<const std::pair<std::string, std::string>> skipped,
                            bool bold) {
  if (skipped.empty()) return "";
  std::map<std::string, std::vector<std::string>> rows_of;
  for (const auto& [id, reason] : skipped) rows_of[reason].push_back(id);
  Table table({{"skipped", Align::kRight}, {"reason"}, {"rows (--json names all)"}});
  for (const auto& [reason, ids] : rows_of) {
    table.AddRow({fmt::format("{}", ids.size()), reason, FirstIds(ids)});
  }
  return "\n" + table.ToText(bold);
}

}  // namespace trimtab
