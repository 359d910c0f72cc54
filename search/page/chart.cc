#include "search/page/chart.h"

#include <algorithm>

#include "engine/base/error.h"
#include "search/page/page_assets.h"

namespace trimtab {
namespace {

using nlohmann::json;

json WithTooltips(const ChartData& data) {
  json rows = data.rows;
  for (json& row : rows) {
    json lines = json::array();
    for (const Column& column : data.columns) {
      const std::string text = ShownText(row.at(column.field), column.shown);
      if (!text.empty()) lines.push_back({column.heading, text});
    }
    row["tooltip"] = lines;
  }
  return rows;
}

json Specification(const Chart& chart) {
  json specification = json::parse(PageAsset(chart.name + ".json"));
  for (const ChartData& data : chart.data) {
    json& sets = specification["data"];
    const auto set = std::find_if(sets.begin(), sets.end(),
                                  [&](const json& each) { return each["name"] == data.name; });
    TRIMTAB_ASSERT(set != sets.end(), "chart {} has no data set {}", chart.name, data.name);
    (*set)["values"] = WithTooltips(data);
  }
  return specification;
}

/// JSON that may stand in a script element: no text in it can end the element.
std::string ScriptJson(const json& value) {
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string safe;
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

std::string ChartHtml(const Chart& chart) {
  std::string html = fmt::format(
      "<figure class=\"chart\" id=\"chart-{}\">\n<h2>{}</h2>\n<figcaption>{}</figcaption>\n"
      "<div class=\"plot\"></div>\n<script type=\"application/json\">{}</script>\n"
      "<details><summary>The figures</summary>\n",
      chart.name, Escape(chart.title), Escape(chart.caption), ScriptJson(Specification(chart)));
  for (const ChartData& data : chart.data) {
    if (!data.columns.empty()) html += Table(data.columns, data.rows);
  }
  return html + "</details>\n</figure>\n";
}

}  // namespace trimtab
