#include "search/page/html.h"

#include <cmath>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "search/page/parts.h"

namespace trimtab {
namespace {

bool IsNumber(Shown shown) { return shown != Shown::kText && shown != Shown::kLayout; }

const char* ClassOf(Shown shown) { return IsNumber(shown) ? "number" : "text"; }

std::string WithTrueMinus(std::string text) {
  if (text.starts_with('-')) text.replace(0, 1, "\u2212");
  return text;
}

}  // namespace

std::string Escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string EscapedText(const nlohmann::json& text) { return Escape(text.get<std::string>()); }

std::string LayoutHtml(const std::string& layout) {
  std::string html = "<code>";
  for (const char c : layout) {
    html += Escape(std::string_view(&c, 1));
    if (c == ',') html += "<wbr>";
  }
  return html + "</code>";
}

std::string Grouped(double value) {
  const double size = std::abs(value);
  if (size < 1000 && size != std::floor(size)) {
    return WithTrueMinus(size >= 100 ? fmt::format("{:.1f}", value) : fmt::format("{:.3g}", value));
  }
  return WithTrueMinus(Thousands(std::llround(value)));
}

std::string Percent(double fraction) {
  std::string number = fmt::format("{:.1f}", fraction * 100);
  if (number.ends_with(".0")) number.resize(number.size() - 2);
  return WithTrueMinus(number + " %");
}

std::string SignedPercent(double fraction) {
  return WithTrueMinus(fmt::format("{:+.1f} %", fraction * 100));
}

std::string TrustLabel(const std::string& trust) {
  return fmt::format("<span class=\"trust {0}\">{0}</span>", Escape(trust));
}

std::string SentenceHtml(const Finding& finding) {
  std::vector<std::string> layouts;
  for (const std::string& each : finding.layouts) layouts.push_back(LayoutHtml(each));
  const std::string text = Escape(Capitalised(finding.text));
  return layouts.empty() ? text + "." : text + ": " + Listed(layouts) + ".";
}

std::string ParagraphsHtml(const std::vector<Finding>& findings) {
  std::string html;
  for (const Finding& each : findings) html += "<p>" + SentenceHtml(each) + "</p>\n";
  return html;
}

std::string Tile(const std::string& title, const std::string& figure, const std::string& words) {
  return fmt::format("<section class=\"tile\"><h2>{}</h2>\n<p class=\"big\">{}</p>\n{}</section>\n",
                     title, figure, words);
}

std::string WarningHtml(const std::string& html) {
  return fmt::format("<p class=\"warning\" role=\"note\">{}</p>\n", html);
}

std::string Listed(const std::vector<std::string>& items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

std::string ShownText(const nlohmann::json& value, Shown shown) {
  if (value.is_null()) return "";
  switch (shown) {
    case Shown::kText:
    case Shown::kLayout:
      return value.get<std::string>();
    case Shown::kCount:
    case Shown::kFigure:
      return Grouped(value.get<double>());
    case Shown::kBytes:
      return FormatBytes(value.get<int64_t>());
    case Shown::kSeconds:
      return fmt::format("{:.4g} s", value.get<double>());
    case Shown::kSignedPercent:
      return SignedPercent(value.get<double>());
  }
  TRIMTAB_ASSERT(false, "column kind {}", static_cast<int>(shown));
}

std::string Table(const std::vector<Column>& columns, const nlohmann::json& rows) {
  std::string html = "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>";
  for (const Column& column : columns) {
    html += fmt::format("<th class=\"{}\">{}</th>", ClassOf(column.shown), Escape(column.heading));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const nlohmann::json& row : rows) {
    html += "<tr>";
    for (const Column& column : columns) {
      const std::string text = ShownText(row.at(column.field), column.shown);
      html += fmt::format("<td class=\"{}\">{}</td>", ClassOf(column.shown),
                          column.shown == Shown::kLayout ? LayoutHtml(text) : Escape(text));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace trimtab
