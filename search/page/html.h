// Html: the pieces that every section of the report page is made of.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "search/page/findings.h"

namespace trimtab {

/// Text as it may stand between tags and in attributes.
std::string Escape(std::string_view text);

/// A JSON string, escaped.
std::string EscapedText(const nlohmann::json& text);

/// A layout as code that may wrap at its commas.
std::string LayoutHtml(const std::string& layout);

/// "3,986", "123.4" below a thousand, "1.01" below a hundred.
std::string Grouped(double value);

/// 0.025 as "2.5 %", 0.95 as "95 %".
std::string Percent(double fraction);

/// 0.025 as "+2.5 %", -0.025 with a true minus sign.
std::string SignedPercent(double fraction);

/// How far a figure can be trusted, as a small label: measured, calibrated or modelled.
std::string TrustLabel(const std::string& trust);

/// Writes a figure with what it is and, in `html`, what is to be said of it.
std::string Tile(const std::string& title, const std::string& figure, const std::string& html);

/// Frames `html`, a text, as a note that stands out.
std::string WarningHtml(const std::string& html);

/// Writes a finding as a sentence of a page.
std::string SentenceHtml(const Finding& finding);

/// Writes a paragraph of each.
std::string ParagraphsHtml(const std::vector<Finding>& findings);

/// "a", "a and b", "a, b and c".
std::string Listed(const std::vector<std::string>& items);

/// How a column prints its values.
enum class Shown { kText, kLayout, kCount, kFigure, kBytes, kSeconds, kSignedPercent };

/// A column of a table that shows a list of JSON objects.
struct Column {
  std::string field;
  std::string heading;
  Shown shown = Shown::kText;
};

/// The value as the table prints it, not escaped; null is empty.
std::string ShownText(const nlohmann::json& value, Shown shown);

/// The rows, in a frame that scrolls sideways where the page is too narrow.
std::string Table(const std::vector<Column>& columns, const nlohmann::json& rows);

}  // namespace trimtab
