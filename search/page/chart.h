// Chart: figures of the report as a picture and, beside it, as a table.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "search/page/html.h"

namespace trimtab {

/// Rows that a chart draws. The page also prints them as a table with these columns; without
/// columns they are only drawn.
struct ChartData {
  std::string name;  // of the data set in the chart's specification
  std::vector<Column> columns;
  nlohmann::json rows = nlohmann::json::array();
};

struct Chart {
  std::string name;  // charts/NAME.json is its Vega specification
  std::string title;
  std::string caption;
  std::vector<ChartData> data;
};

/// The chart with its specification, the data filled in, and its tables folded under it. Every
/// row gets a `tooltip`: what the table says of it.
std::string ChartHtml(const Chart& chart);

/// Counts what was left out of the space, by rule.
Chart PrunedChart(const nlohmann::json& report);

/// Those charts for which the report has figures.
std::vector<Chart> Charts(const nlohmann::json& report);

}  // namespace trimtab
